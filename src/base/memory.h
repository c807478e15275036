// How much memory there is, and how much this process may still take.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/result.h"

namespace nmc {

// Bytes that could be taken now without swapping: the kernel's MemAvailable, or what is left of this container's limit
// where that is less. A snapshot: others take memory too. All ones where the system doesn't tell.
std::uint64_t available_memory();

// Bytes of memory that there are: the machine's, or this container's limit where that is less. All ones where the
// system doesn't tell.
std::uint64_t total_memory();

// The number behind `name:` in the text of /proc/meminfo, in bytes. kNotFound or kCorrupt otherwise.
Result<std::uint64_t> meminfo_field(std::string_view meminfo, std::string_view name);

}  // namespace nmc
