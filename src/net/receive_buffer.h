// Internal to net: the bytes of a stream that have arrived and aren't used yet.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <memory>
#include <span>
#include <utility>

#include "net/frame.h"

namespace nmc::net {

// Grows with what arrives, never with what a peer announces: at most to twice the bytes it holds. Not thread-safe.
class ReceiveBuffer {
 public:
  // Small, since what of a payload arrives here is copied once more; enough for a hot message with its payload.
  static constexpr std::size_t kBytes = 16 << 10;

  ByteSpan bytes() const { return {memory_.get() + begin_, end_ - begin_}; }
  std::size_t size() const { return end_ - begin_; }
  bool empty() const { return begin_ == end_; }

  // Room (never none) for the next bytes on the way to `wanted` in all. Moves what bytes() gave.
  MutableByteSpan prepare(std::size_t wanted) {
    if (empty()) start_over();
    if (end_ == capacity_ || (begin_ > 0 && begin_ + wanted > capacity_)) make_room(wanted);
    return {memory_.get() + end_, capacity_ - end_};
  }
  void commit(std::size_t bytes) { end_ += bytes; }
  void consume(std::size_t bytes) { begin_ += bytes; }

  // Moves as much as there is to the front of `to`; returns how much.
  std::size_t take(MutableByteSpan to) {
    const std::size_t count = std::min(to.size(), size());
    if (count > 0) std::memcpy(to.data(), memory_.get() + begin_, count);
    consume(count);
    return count;
  }

 private:
  void start_over() {
    begin_ = end_ = 0;
    if (capacity_ <= kBytes) return;
    memory_.reset();  // a large body came by; few do
    capacity_ = 0;
  }

  void make_room(std::size_t wanted) {
    const std::size_t held = size();
    const std::size_t capacity = std::max(kBytes, std::min(wanted, 2 * held));
    if (capacity == capacity_ && begin_ > 0) {
      std::memmove(memory_.get(), memory_.get() + begin_, held);
    } else {
      auto memory = std::make_unique_for_overwrite<std::byte[]>(capacity);
      if (held > 0) std::memcpy(memory.get(), memory_.get() + begin_, held);
      memory_ = std::move(memory);
      capacity_ = capacity;
    }
    begin_ = 0;
    end_ = held;
  }

  std::unique_ptr<std::byte[]> memory_;
  std::size_t capacity_ = 0;
  std::size_t begin_ = 0, end_ = 0;
};

}  // namespace nmc::net
