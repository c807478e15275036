#include "model/added_tokens.h"

#include <algorithm>

#include "model/unicode.h"

namespace nmc::model {
namespace {

bool has_class(char32_t code, CharClass wanted) { return (char_classes(code) & wanted) != 0; }

bool touches_word(std::string_view before, std::string_view after) {
  return (!before.empty() && has_class(utf8_char_before(before, before.size()).code, kWord)) ||
         (!after.empty() && has_class(utf8_char_at(after, 0).code, kWord));
}

std::size_t space_bytes_before(std::string_view text) {
  std::size_t at = text.size();
  while (at > 0) {
    const Utf8Char last = utf8_char_before(text, at);
    if (!has_class(last.code, kSpace)) break;
    at -= last.bytes;
  }
  return text.size() - at;
}

std::size_t space_bytes_after(std::string_view text) {
  std::size_t at = 0;
  while (at < text.size()) {
    const Utf8Char next = utf8_char_at(text, at);
    if (!has_class(next.code, kSpace)) break;
    at += next.bytes;
  }
  return at;
}

}  // namespace

std::vector<MarkerRange> ranges_within(std::span<const MarkerRange> ranges, std::size_t begin, std::size_t bytes) {
  std::vector<MarkerRange> within;
  for (const MarkerRange& range : ranges) {
    if (range.end <= begin) continue;
    within.push_back({std::min(range.end - begin, bytes), range.parse_special});
    if (within.back().end == bytes) break;
  }
  return within;
}

AddedTokenMatcher::AddedTokenMatcher(std::vector<AddedToken> tokens) : tokens_(std::move(tokens)), nodes_(1) {
  for (std::uint32_t i = 0; i < tokens_.size(); ++i) insert(i);
}

bool AddedTokenMatcher::has_special() const { return std::ranges::any_of(tokens_, &AddedToken::special); }

void AddedTokenMatcher::insert(std::uint32_t token) {
  const std::string& content = tokens_[token].content;
  first_bytes_.set(static_cast<unsigned char>(content.front()));
  std::uint32_t node = 0;
  for (const char character : content) {
    const auto byte = static_cast<unsigned char>(character);
    auto& children = nodes_[node].children;
    const auto it = std::ranges::lower_bound(children, byte, {}, &std::pair<unsigned char, std::uint32_t>::first);
    if (it != children.end() && it->first == byte) {
      node = it->second;
      continue;
    }
    const auto created = static_cast<std::uint32_t>(nodes_.size());
    children.insert(it, {byte, created});
    nodes_.emplace_back();  // after the last use of `children`
    node = created;
  }
  nodes_[node].token = static_cast<std::int32_t>(token);
}

const AddedToken* AddedTokenMatcher::longest_at(std::string_view text, std::size_t special_bytes_max) const {
  const AddedToken* longest = nullptr;
  std::uint32_t node = 0;
  for (const char character : text) {
    const auto& children = nodes_[node].children;
    const auto byte = static_cast<unsigned char>(character);
    const auto it = std::ranges::lower_bound(children, byte, {}, &std::pair<unsigned char, std::uint32_t>::first);
    if (it == children.end() || it->first != byte) break;
    node = it->second;
    if (nodes_[node].token < 0) continue;
    const AddedToken& token = tokens_[static_cast<std::size_t>(nodes_[node].token)];
    if (!token.special || token.content.size() <= special_bytes_max) longest = &token;
  }
  return longest;
}

void AddedTokenMatcher::for_each_part(std::string_view text, std::span<const MarkerRange> ranges,
                                      FunctionRef<void(const Part&)> part) const {
  std::size_t done = 0;  // up to here the text was handed out
  std::size_t range = 0;
  for (std::size_t at = 0; at < text.size();) {
    const AddedToken* token = nullptr;
    if (first_bytes_[static_cast<unsigned char>(text[at])]) {
      while (ranges[range].end <= at) ++range;
      token = longest_at(text.substr(at), ranges[range].end - at);
    }
    if (token == nullptr) {
      ++at;
      continue;
    }
    std::size_t begin = at;
    std::size_t end = at + token->content.size();
    at = end;
    if (token->special && !ranges[range].parse_special) continue;
    if (token->single_word && touches_word(text.substr(0, begin), text.substr(end))) continue;
    // A token of white space may lie inside what the one before it swallowed: nothing is left to scan there, and
    // scanning only what wasn't scanned before keeps the whole linear.
    if (token->lstrip && begin > done) begin -= space_bytes_before(text.substr(done, begin - done));
    if (token->rstrip) end = end < done ? done : end + space_bytes_after(text.substr(end));
    if (begin > done) part({text.substr(done, begin - done), nullptr});
    part({text.substr(begin, end - begin), token});
    done = end;
  }
  if (done < text.size()) part({text.substr(done), nullptr});
}

}  // namespace nmc::model
