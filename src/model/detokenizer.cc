#include "model/detokenizer.h"

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

std::string Detokenizer::push(TokenId id) {
  return stream_.push(skip_special_ ? tokenizer_->token_bytes(id) : tokenizer_->token_text(id));
}

}  // namespace nmc::model
