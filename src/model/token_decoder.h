// From the texts of a vocabulary to the texts that tokens stand for: the decoder of tokenizer.json.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "model/normalizer.h"

namespace nmc::model {

// Each token's text loses up to so many of that character at its ends.
struct StripCharStep {
  char32_t character = 0;
  std::uint32_t start = 0;
  std::uint32_t stop = 0;
};

// `replacement` becomes a space, but in the first token nothing, unless it keeps them all.
struct MetaspaceDecodeStep {
  char32_t replacement = 0;
  bool drops_first = true;
};

struct TokenDecoder {
  using Step = std::variant<ReplaceStep, StripCharStep, MetaspaceDecodeStep>;

  bool byte_level = false;      // texts are in the byte alphabet; then there is nothing else
  std::vector<Step> steps;      // on the text of each token
  bool byte_fallback = false;   // then a text <0xNN> is that byte
  char32_t strip = 0;           // left out at the start of the joined text,
  std::uint32_t strip_max = 0;  // up to so many times

  // What a token of that text stands for. `is_first`: in a sequence.
  std::string text_of(std::string_view token, bool is_first) const;
  // Whether that may differ.
  bool first_differs() const;
};

// The byte that "<0xNN>" names.
std::optional<std::uint8_t> named_byte(std::string_view token);
// "<0xNN>".
std::string name_of_byte(std::uint8_t byte);

}  // namespace nmc::model
