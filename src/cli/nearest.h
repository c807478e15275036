// "Did you mean": the known word closest to what was typed.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace nmc::cli {

// Insertions, deletions, replacements and swaps of neighbours that turn one word into the other.
std::size_t edit_distance(std::string_view a, std::string_view b);

// The candidate of least distance, of equals the one nearest in length; nothing when all are too far from `word` to be
// meant by it.
std::optional<std::string> nearest(std::string_view word, std::span<const std::string> candidates);

// ", did you mean PREFIXcandidate?" or "".
std::string did_you_mean(std::string_view word, std::span<const std::string> candidates, std::string_view prefix = "");

}  // namespace nmc::cli
