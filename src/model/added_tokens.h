// Tokens that are cut out of a text before anything else looks at it: control tokens and other fixed strings.
#pragma once

#include <bitset>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/thread_pool.h"
#include "kv/prefix.h"

namespace nmc::model {

struct AddedToken {
  kv::TokenId id = 0;
  std::string content;       // at most kAddedTokenBytesMax
  bool single_word = false;  // only where no word character touches it
  bool lstrip = false;       // swallows the white space before it
  bool rstrip = false;       // and after it
  bool normalized = false;   // these are looked for only in what the others left over
  bool special = false;
};

// Matching looks at no more bytes than this from each position, so its time is bounded by the text's length.
inline constexpr std::size_t kAddedTokenBytesMax = 1024;

// Finds the leftmost longest of a set of strings. Immutable, thread-safe.
class AddedTokenMatcher {
 public:
  AddedTokenMatcher() = default;
  // Contents are non-empty and no two are equal.
  explicit AddedTokenMatcher(std::vector<AddedToken> tokens);

  struct Part {
    std::string_view text;              // of the token, or what lies between tokens (never empty)
    const AddedToken* token = nullptr;  // nullptr: text between
  };
  // The parts of `text` in order. Without `parse_special` special tokens aren't cut out; as in the Python package, they
  // still hide shorter tokens inside them.
  void for_each_part(std::string_view text, bool parse_special, FunctionRef<void(const Part&)> part) const;

 private:
  struct Node {
    std::vector<std::pair<unsigned char, std::uint32_t>> children;
    std::int32_t token = -1;  // index in tokens_
  };
  void insert(std::uint32_t token);
  const AddedToken* longest_at(std::string_view text) const;

  std::vector<AddedToken> tokens_;
  std::vector<Node> nodes_;
  std::bitset<256> first_bytes_;
};

}  // namespace nmc::model
