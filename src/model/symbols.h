// From a piece of text to the symbols that merges start from.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "model/tokenizer_file.h"

namespace nmc::model {

// Symbols are the tokens of single bytes or characters; what has none is spelled in tokens <0xNN>, is the unknown
// token, or is left out, in this order. Control tokens are no symbols. Immutable, thread-safe.
class SymbolTable {
 public:
  // `is_special` by id.
  SymbolTable(const TokenizerFile& file, const std::vector<bool>& is_special);

  void append(std::string_view piece, std::vector<kv::TokenId>& symbols) const;

 private:
  static constexpr std::int64_t kNone = -1;

  // Collects symbols, and unknown ones in rows.
  class Row;
  std::int64_t id_of(char32_t code) const;
  bool append_bytes(std::string_view bytes, std::vector<kv::TokenId>& symbols) const;

  bool byte_level_;
  bool fuse_unknown_;
  std::optional<kv::TokenId> unknown_id_;
  std::array<std::int64_t, 256> by_byte_;  // byte_level: of the byte; else of the ASCII character
  std::unordered_map<char32_t, kv::TokenId> by_character_;
  std::array<std::int64_t, 256> fallback_;  // <0xNN>
  bool has_fallback_ = false;
};

}  // namespace nmc::model
