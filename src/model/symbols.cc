#include "model/symbols.h"

#include "model/unicode.h"

namespace nmc::model {

using kv::TokenId;

SymbolTable::SymbolTable(const TokenizerFile& file, const std::vector<bool>& is_special)
    : byte_level_(file.byte_level), fuse_unknown_(file.fuse_unknown), unknown_id_(file.unknown_id) {
  const auto find = [&](const std::string& text) -> std::int64_t {
    const auto it = file.ids.find(text);
    return it == file.ids.end() || is_special[it->second] ? kNone : std::int64_t{it->second};
  };
  by_byte_.fill(kNone);
  fallback_.fill(kNone);
  for (unsigned byte = 0; byte < 256; ++byte) {
    if (file.byte_fallback) fallback_[byte] = find(name_of_byte(static_cast<std::uint8_t>(byte)));
    has_fallback_ = has_fallback_ || fallback_[byte] != kNone;
    if (!byte_level_ && byte >= 0x80) continue;
    std::string text;
    append_utf8(text, byte_level_ ? byte_to_character(static_cast<std::uint8_t>(byte)) : byte);
    by_byte_[byte] = find(text);
  }
  if (byte_level_) return;
  for (const auto& [text, id] : file.ids) {
    if (text.empty() || is_special[id]) continue;
    const Utf8Char first = utf8_char_at(text, 0);
    if (first.bytes > 1 && first.bytes == text.size()) by_character_.emplace(first.code, id);
  }
}

class SymbolTable::Row {
 public:
  Row(const SymbolTable& table, std::vector<TokenId>& symbols) : table_(table), symbols_(symbols) {}

  void add(TokenId id) {
    finish();
    symbols_.push_back(id);
  }
  void add_unknown() {
    if (!table_.unknown_id_) return;
    if (!table_.fuse_unknown_) finish();
    pending_ = true;
  }
  void finish() {
    if (pending_) symbols_.push_back(*table_.unknown_id_);
    pending_ = false;
  }

 private:
  const SymbolTable& table_;
  std::vector<TokenId>& symbols_;
  bool pending_ = false;  // an unknown token that isn't written yet
};

std::int64_t SymbolTable::id_of(char32_t code) const {
  const auto it = by_character_.find(code);
  return it == by_character_.end() ? kNone : std::int64_t{it->second};
}

// As in the Python package, this doesn't end a row of unknown symbols.
bool SymbolTable::append_bytes(std::string_view bytes, std::vector<TokenId>& symbols) const {
  if (!has_fallback_) return false;
  for (const char byte : bytes) {
    if (fallback_[static_cast<unsigned char>(byte)] == kNone) return false;
  }
  for (const char byte : bytes) symbols.push_back(static_cast<TokenId>(fallback_[static_cast<unsigned char>(byte)]));
  return true;
}

void SymbolTable::append(std::string_view piece, std::vector<TokenId>& symbols) const {
  Row row(*this, symbols);
  for (std::size_t at = 0; at < piece.size();) {
    const auto byte = static_cast<unsigned char>(piece[at]);
    std::int64_t id = by_byte_[byte];
    std::size_t bytes = 1;
    if (!byte_level_ && byte >= 0x80) {
      const Utf8Char next = utf8_char_at(piece, at);
      bytes = next.bytes;
      if (bytes > 1) id = id_of(next.code);
    }
    if (id != kNone) {
      row.add(static_cast<TokenId>(id));
    } else if (byte_level_) {
      std::string character;
      append_utf8(character, byte_to_character(byte));
      if (!append_bytes(character, symbols)) row.add_unknown();
    } else if (!append_bytes(piece.substr(at, bytes), symbols)) {
      row.add_unknown();
    }
    at += bytes;
  }
  row.finish();
}

}  // namespace nmc::model
