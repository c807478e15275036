#include "model/token_decoder.h"

#include <fmt/format.h>

#include <algorithm>

#include "model/unicode.h"

namespace nmc::model {
namespace {

std::string strip_ends(const StripCharStep& step, std::string_view text) {
  for (std::uint32_t i = 0; i < step.start && !text.empty(); ++i) {
    const Utf8Char first = utf8_char_at(text, 0);
    if (first.code != step.character) break;
    text.remove_prefix(first.bytes);
  }
  for (std::uint32_t i = 0; i < step.stop && !text.empty(); ++i) {
    const Utf8Char last = utf8_char_before(text, text.size());
    if (last.code != step.character) break;
    text.remove_suffix(last.bytes);
  }
  return std::string(text);
}

std::string unmark(const MetaspaceDecodeStep& step, std::string_view text, bool is_first) {
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    const Utf8Char next = utf8_char_at(text, at);
    if (next.code != step.replacement) {
      out += text.substr(at, next.bytes);
    } else if (!(is_first && step.drops_first)) {
      out += ' ';
    }
    at += next.bytes;
  }
  return out;
}

}  // namespace

std::string TokenDecoder::text_of(std::string_view token, bool is_first) const {
  std::string text(token);
  for (const Step& step : steps) {
    if (const auto* replace = std::get_if<ReplaceStep>(&step)) {
      text = replace_all(*replace->regex, text, replace->content);
    } else if (const auto* strip_char = std::get_if<StripCharStep>(&step)) {
      text = strip_ends(*strip_char, text);
    } else {
      text = unmark(std::get<MetaspaceDecodeStep>(step), text, is_first);
    }
  }
  return text;
}

bool TokenDecoder::first_differs() const {
  return std::ranges::any_of(steps, [](const Step& step) {
    const auto* metaspace = std::get_if<MetaspaceDecodeStep>(&step);
    return metaspace != nullptr && metaspace->drops_first;
  });
}

std::optional<std::uint8_t> named_byte(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return std::nullopt;
  unsigned value = 0;
  for (const char digit : token.substr(3, 2)) {
    const std::size_t found = std::string_view("0123456789abcdef0123456789ABCDEF").find(digit);
    if (found == std::string_view::npos) return std::nullopt;
    value = value * 16 + static_cast<unsigned>(found % 16);
  }
  return static_cast<std::uint8_t>(value);
}

std::string name_of_byte(std::uint8_t byte) { return fmt::format("<0x{:02X}>", byte); }

}  // namespace nmc::model
