// Small numbers for threads, so that each can have a cell of its own in an array of counters.
#pragma once

#include <cstdint>

namespace nmc {

namespace internal {
inline constexpr std::uint32_t kNoThreadNumber = ~std::uint32_t{0};
inline constinit thread_local std::uint32_t own_thread_number = kNoThreadNumber;
std::uint32_t take_thread_number();
}  // namespace internal

// The calling thread's: the smallest that no other living thread of this process had when this one first asked. What a
// thread did before it ended happens before whatever the next one with its number does. Thread-safe; after the first
// call of a thread it costs a few instructions.
inline std::uint32_t thread_number() {
  const std::uint32_t own = internal::own_thread_number;
  return own != internal::kNoThreadNumber ? own : internal::take_thread_number();
}

}  // namespace nmc
