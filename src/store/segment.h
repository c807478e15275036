// A segment: a shared file that holds the bytes of objects. The master and those who fill reservations write through a
// mapping that stays inside the library; every view handed out is of a read-only mapping of the same file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/result.h"
#include "base/syscall.h"

namespace nmc::store {

// The writable side; owns the memfd. Its pages are reserved at creation, so a full machine is an error here and not a
// fault later.
class Segment {
 public:
  static Result<Segment> create(std::size_t bytes);

  int fd() const { return fd_.get(); }
  std::size_t size() const { return mapping_.size(); }
  std::span<std::byte> bytes(std::uint64_t offset, std::size_t size);

 private:
  Segment(UniqueFd fd, Mapping mapping) : fd_(std::move(fd)), mapping_(std::move(mapping)) {}
  UniqueFd fd_;
  Mapping mapping_;
};

// The read-only side. Thread-safe.
class SegmentView {
 public:
  static Result<SegmentView> open(int fd);

  std::size_t size() const { return mapping_.size(); }
  // Empty when the range isn't inside the segment (offset and size come from shared memory).
  std::span<const std::byte> bytes(std::uint64_t offset, std::uint64_t size) const {
    if (offset > mapping_.size() || size > mapping_.size() - offset) return {};
    return {mapping_.data() + offset, static_cast<std::size_t>(size)};
  }

 private:
  explicit SegmentView(Mapping mapping) : mapping_(std::move(mapping)) {}
  Mapping mapping_;
};

}  // namespace nmc::store
