// Tokens that are cut out of a text before anything else looks at it: control tokens and other fixed strings.
#pragma once

#include <bitset>
#include <cstdint>
#include <span>
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

// A text is a row of ranges; control tokens are cut out only where they lie inside of one that allows it.
struct MarkerRange {
  std::size_t end = 0;  // in bytes of the text; ascending, the last at the text's end
  bool parse_special = false;
};
// Those of the `bytes` bytes from `begin` on.
std::vector<MarkerRange> ranges_within(std::span<const MarkerRange> ranges, std::size_t begin, std::size_t bytes);

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
  // The parts of `text` in order. Where a range doesn't parse special tokens they aren't cut out; as in the Python
  // package, they still hide shorter tokens inside them. One that spans ranges is no token and hides nothing.
  void for_each_part(std::string_view text, std::span<const MarkerRange> ranges,
                     FunctionRef<void(const Part&)> part) const;
  bool empty() const { return tokens_.empty(); }
  bool has_special() const;

 private:
  struct Node {
    std::vector<std::pair<unsigned char, std::uint32_t>> children;
    std::int32_t token = -1;  // index in tokens_
  };
  void insert(std::uint32_t token);
  // Special tokens of at most `special_bytes_max` bytes.
  const AddedToken* longest_at(std::string_view text, std::size_t special_bytes_max) const;

  std::vector<AddedToken> tokens_;
  std::vector<Node> nodes_;
  std::bitset<256> first_bytes_;
};

}  // namespace nmc::model
