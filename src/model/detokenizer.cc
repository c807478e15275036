#include "model/detokenizer.h"

#include <utility>

#include "base/json.h"
#include "model/unicode.h"

namespace nmc::model {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

}  // namespace

std::string Utf8Stream::push(std::string_view bytes) {
  std::string out;
  for (const char byte : bytes) push_byte(static_cast<std::uint8_t>(byte), out);
  return out;
}

// Bounds of the second byte keep out overlong forms, surrogates and what lies beyond U+10FFFF, so that a broken
// sequence is noticed at the first byte that rules a character out.
void Utf8Stream::push_byte(std::uint8_t byte, std::string& out) {
  if (missing_ > 0) {
    if (byte >= low_ && byte <= high_) {
      pending_.push_back(static_cast<char>(byte));
      low_ = 0x80;
      high_ = 0xBF;
      if (--missing_ == 0) {
        out += pending_;
        pending_.clear();
      }
      return;
    }
    out += flush();  // and the byte starts anew
  }
  if (byte < 0x80) {
    out.push_back(static_cast<char>(byte));
    return;
  }
  if (byte < 0xC2 || byte > 0xF4) {
    out += kReplacement;
    return;
  }
  missing_ = byte >= 0xF0 ? 3 : byte >= 0xE0 ? 2 : 1;
  if (byte == 0xE0) low_ = 0xA0;
  if (byte == 0xED) high_ = 0x9F;
  if (byte == 0xF0) low_ = 0x90;
  if (byte == 0xF4) high_ = 0x8F;
  pending_.push_back(static_cast<char>(byte));
}

std::string Utf8Stream::flush() {
  const bool unfinished = missing_ > 0;
  pending_.clear();
  missing_ = 0;
  low_ = 0x80;
  high_ = 0xBF;
  return unfinished ? std::string(kReplacement) : std::string();
}

Detokenizer::Detokenizer(const Tokenizer& tokenizer, bool skip_special)
    : tokenizer_(&tokenizer),
      skip_special_(skip_special),
      rules_(tokenizer.decode_rules()),
      strip_left_(rules_.strip_max) {}

std::string Detokenizer::push(TokenId id) {
  if (skip_special_ && tokenizer_->is_special(id)) return {};
  std::string_view text = tokenizer_->token_text(id);
  std::optional<std::string> first;
  if (rules_.first_differs && !begun_) {
    first = tokenizer_->first_token_text(id);
    if (!first) return {};
    text = *first;
    begun_ = true;
  }
  if (rules_.byte_runs && tokenizer_->is_byte(id)) {
    byte_run_ += text;
    return {};
  }
  if (text.empty()) return {};
  std::string out = end_byte_run();
  out += stream_.push(text);
  return strip(std::move(out));
}

std::string Detokenizer::flush() {
  std::string out = end_byte_run();
  out += stream_.flush();
  out = strip(std::move(out));
  begun_ = false;
  strip_left_ = rules_.strip_max;
  return out;
}

std::string Detokenizer::end_byte_run() {
  std::string run = std::exchange(byte_run_, {});
  if (is_valid_utf8(run)) return run;
  std::string replaced;
  for (std::size_t i = 0; i < run.size(); ++i) replaced += kReplacement;
  return replaced;
}

std::string Detokenizer::strip(std::string text) {
  std::size_t at = 0;
  while (strip_left_ > 0 && at < text.size()) {
    const Utf8Char next = utf8_char_at(text, at);
    strip_left_ = next.code == rules_.strip ? strip_left_ - 1 : 0;
    if (next.code == rules_.strip) at += next.bytes;
  }
  text.erase(0, at);
  return text;
}

}  // namespace nmc::model
