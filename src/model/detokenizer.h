// Ids to text as they come: never half a character.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "model/tokenizer.h"

namespace nmc::model {

// Bytes in any pieces to valid UTF-8. A maximal sequence that can't become a character turns into one U+FFFD (the rule
// of Unicode, of Python's errors="replace" and of Rust's from_utf8_lossy), as soon as that is certain and not before.
// What push() and flush() return is valid UTF-8 each, and joined it doesn't depend on how the bytes were cut. Not
// thread-safe.
class Utf8Stream {
 public:
  std::string push(std::string_view bytes);
  // The end: an unfinished character becomes U+FFFD. Ready for another text afterwards.
  std::string flush();

 private:
  void push_byte(std::uint8_t byte, std::string& out);

  std::string pending_;      // a proper prefix of a character
  unsigned missing_ = 0;     // bytes to its end
  std::uint8_t low_ = 0x80;  // bounds of the next byte
  std::uint8_t high_ = 0xBF;
};

// The text of one sequence. push() of each id, then flush(), joined, equals Tokenizer::decode of all ids, and each is
// valid UTF-8. Where the tokenizer has byte tokens beside its texts, a row of them is held back until it ends, since
// one bad byte makes U+FFFD of the whole row. The tokenizer must outlive it. Not thread-safe.
class Detokenizer {
 public:
  explicit Detokenizer(const Tokenizer& tokenizer, bool skip_special = true);

  std::string push(TokenId id);
  // The end; ready for another sequence afterwards.
  std::string flush();

 private:
  std::string end_byte_run();
  std::string strip(std::string text);

  const Tokenizer* tokenizer_;
  bool skip_special_;
  DecodeRules rules_;
  bool begun_ = false;
  std::uint32_t strip_left_;
  std::string byte_run_;
  Utf8Stream stream_;
};

}  // namespace nmc::model
