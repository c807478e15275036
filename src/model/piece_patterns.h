// The patterns by which real tokenizers cut text, each as a matcher of its own: many times as fast as the regular
// expression it stands for, and equal to it (a test compares them on random text).
#pragma once

#include <cstddef>
#include <string_view>

namespace nmc::model {

// End of the piece that begins at `at` (< text.size()). These patterns leave nothing between their matches.
using PieceEnd = std::size_t (*)(std::string_view text, std::size_t at);

inline constexpr std::string_view kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
// Numbers in pieces of up to three digits.
inline constexpr std::string_view kLlama3Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|)"
    R"(\s+(?!\S)|\s+)";
// Each digit on its own.
inline constexpr std::string_view kQwen2Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
// Llama 3's in another notation.
inline constexpr std::string_view kCl100kPattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|)"
    R"(\s+(?!\S)|\s+)";
// No matcher of its own: marks join letters, and CamelCase is cut.
inline constexpr std::string_view kGpt4oPattern =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
    R"(\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

std::size_t gpt2_piece_end(std::string_view text, std::size_t at);
std::size_t llama3_piece_end(std::string_view text, std::size_t at);
std::size_t qwen2_piece_end(std::string_view text, std::size_t at);

// The matcher of exactly that pattern, nullptr if there is none.
PieceEnd piece_end_of(std::string_view pattern);

}  // namespace nmc::model
