// Reading of `tokenizer.json`, the format of Hugging Face's tokenizers package, as far as BPE goes: of bytes, or of
// characters with bytes as a last resort. The parser has no I/O; what it returns is consistent: every id it mentions
// has a text, every merge joins to an existing token.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "kv/prefix.h"
#include "model/added_tokens.h"
#include "model/normalizer.h"
#include "model/pre_tokenizer.h"
#include "model/token_decoder.h"

namespace nmc::model {

// Of two merges the earlier in the file wins.
struct MergeRule {
  kv::TokenId left = 0;
  kv::TokenId right = 0;
  kv::TokenId joined = 0;
};

struct TokenizerFile {
  // By id; "" where there is no token of that id. With byte_level, texts of the vocabulary are in the byte alphabet;
  // those of added tokens are as written.
  std::vector<std::string> texts;
  std::unordered_map<std::string, kv::TokenId> ids;  // vocabulary and added tokens
  std::vector<MergeRule> merges;
  std::vector<std::uint32_t> merge_ranks;  // of equal ranks the leftmost place wins; empty: the place in `merges`
  std::vector<AddedToken> added;
  Normalizer normalizer;
  PreTokenizer pre_tokenizer;
  TokenDecoder decoder;
  bool byte_level = false;                  // what is merged are bytes, else characters
  bool byte_fallback = false;               // symbols outside of the vocabulary are tokens <0xNN> where there are any
  std::optional<kv::TokenId> unknown_id;    // for those that are none of both
  bool fuse_unknown = false;                // a run of them is one token
  bool ignore_merges = false;               // a piece that is a token is that token, whatever the merges make of it
  std::optional<kv::TokenId> template_bos;  // the post-processor puts it in front
};

// `name` is the file in messages. Constructs that we don't do are kUnsupported and named; what contradicts itself is
// kCorrupt. Work and memory are bounded by the size of `json`.
Result<TokenizerFile> parse_tokenizer_file(std::string_view json, std::string_view name);

// The byte alphabet of GPT-2: each byte as a printable character below U+0144.
char32_t byte_to_character(std::uint8_t byte);
std::optional<std::uint8_t> character_to_byte(char32_t character);
// The bytes of a text in the alphabet.
std::optional<std::string> alphabet_bytes(std::string_view text);
// The bytes that a token's text stands for; a text with a character outside of the alphabet stands for itself.
std::string bytes_of_text(std::string_view text);

// Whether the text of a token is a byte or, without byte_level, a character.
bool is_one_symbol(std::string_view text, bool byte_level);

}  // namespace nmc::model
