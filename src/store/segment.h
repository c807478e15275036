// A segment: a shared file that holds the bytes of objects. The master and those who fill reservations write through a
// mapping that stays inside the library; every view handed out is of a read-only mapping of the same file. Layout:
// docs/formats.md, "Shared memory".
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/result.h"
#include "base/syscall.h"
#include "store/shared_files.h"

namespace nmc::store {

inline constexpr std::array<char, 8> kSegmentMagic = {'N', 'M', 'C', 'S', 'E', 'G', 'M', '1'};
inline constexpr std::uint32_t kSegmentVersion = 1;

// Which segment a file is.
struct SegmentId {
  std::uint64_t boot_id = 0;      // of the index it belongs to
  std::uint32_t number = 0;       // that locations in the index name
  std::uint64_t incarnation = 0;  // of that number
};

struct SegmentHeader {
  std::array<char, 8> magic;
  std::uint32_t version;
  std::uint32_t header_bytes;
  std::uint64_t data_bytes;  // after the header
  std::uint64_t boot_id;
  std::uint64_t incarnation;
  std::uint32_t number;
  std::uint32_t owner;         // client that brought it; 0: the master
  std::array<char, 256> name;  // what users call it, ends with a zero
  std::array<std::byte, 4096 - 304> padding;
};
static_assert(sizeof(SegmentHeader) == 4096);

// The writable side; owns the fd. Its memory is reserved at creation, so a full machine is an error here and not a
// fault later. `bytes` and offsets count from the end of the header.
class Segment {
 public:
  static constexpr std::size_t kNameBytesMax = sizeof(SegmentHeader::name) - 1;
  static constexpr const char* kFilePrefix = "segment.";
  static std::string file_name(std::uint32_t number) { return kFilePrefix + std::to_string(number); }

  static Result<Segment> create(SharedFiles& files, const SegmentId& id, std::uint32_t owner, std::string_view name,
                                std::size_t bytes);
  // An existing one. Checked: kind, version, sizes, and that it is `id`.
  static Result<Segment> open(UniqueFd fd, const SegmentId& id);

  int fd() const { return fd_.get(); }
  std::size_t size() const { return mapping_.size() - sizeof(SegmentHeader); }
  std::uint32_t owner() const { return header().owner; }
  std::string name() const;
  void set_owner(std::uint32_t owner, std::string_view name);
  std::span<std::byte> bytes(std::uint64_t offset, std::size_t size);

 private:
  Segment(UniqueFd fd, Mapping mapping) : fd_(std::move(fd)), mapping_(std::move(mapping)) {}
  const SegmentHeader& header() const { return *reinterpret_cast<const SegmentHeader*>(mapping_.data()); }
  SegmentHeader& header() { return *reinterpret_cast<SegmentHeader*>(mapping_.data()); }
  UniqueFd fd_;
  Mapping mapping_;
};

// The read-only side. Thread-safe.
class SegmentView {
 public:
  // The fd stays the caller's. Checked as by Segment::open().
  static Result<SegmentView> open(int fd, const SegmentId& id);

  std::size_t size() const { return mapping_.size() - sizeof(SegmentHeader); }
  // Empty when the range isn't inside the segment (offset and size come from shared memory).
  std::span<const std::byte> bytes(std::uint64_t offset, std::uint64_t size) const {
    if (offset > this->size() || size > this->size() - offset) return {};
    return {mapping_.data() + sizeof(SegmentHeader) + offset, static_cast<std::size_t>(size)};
  }

 private:
  explicit SegmentView(Mapping mapping) : mapping_(std::move(mapping)) {}
  Mapping mapping_;
};

}  // namespace nmc::store
