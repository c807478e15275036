// Values of the store's tests that say which write they are of, so that every byte can be checked on the reading side.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "base/result.h"

namespace nmc::tools {

inline constexpr std::size_t kValueBytesMin = 16;  // seed and size

// Fills `to` with the value that `key` and `seed` give: seed and size first, then bytes without a pattern.
void make_value(std::string_view key, std::uint64_t seed, std::span<std::byte> to);

// The seed of what was read under `key`; kCorrupt, naming the first wrong byte, when it is no value of that key.
Result<std::uint64_t> check_value(std::string_view key, std::span<const std::byte> value);

}  // namespace nmc::tools
