// Text to token ids and back.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/files.h"
#include "base/hash.h"
#include "base/result.h"
#include "kv/prefix.h"

namespace nmc::model {

using kv::TokenId;

struct EncodeOptions {
  // Text that spells a control token ("</s>") becomes that token. Off for whatever a user wrote inside a chat message:
  // there such text is only text.
  bool parse_special = false;
  // Put the start token in front if this tokenizer is one that does (adds_bos()).
  bool add_bos = false;
};

// A stretch of a text that is encoded as one, and whether control tokens may be spelled in it.
struct TextPart {
  std::string_view text;
  bool parse_special = false;
};

// How the texts of tokens come together in decoded text.
struct DecodeRules {
  bool first_differs = false;   // first_token_text() is the text of a sequence's first token
  bool byte_runs = false;       // a row of is_byte() tokens is text if all of it is, else U+FFFD for each
  char32_t strip = 0;           // left out at the start of the text,
  std::uint32_t strip_max = 0;  // up to so many times
};

// Immutable, thread-safe. Ids beyond vocab_size() (a model's table may be larger) stand for nothing.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  // Total: text that isn't valid UTF-8 is encoded byte by byte where it isn't.
  std::vector<TokenId> encode(std::string_view text, EncodeOptions options = {}) const {
    const TextPart part{text, options.parse_special};
    return encode_parts({&part, 1}, options.add_bos);
  }

  // The parts as one text, in which a control token is one only where it lies inside of one part with parse_special: a
  // marker that begins in one part and ends in another is text. What lies between two tokens so found is encoded in one
  // go, whatever parts it comes from; so the ids are those of the joined text when the other parts spell no control
  // token.
  virtual std::vector<TokenId> encode_parts(std::span<const TextPart> parts, bool add_bos = false) const = 0;

  // The bytes an id stands for in decoded text, control tokens included ("</s>"); they may be part of a character.
  // Valid as long as the tokenizer.
  virtual std::string_view token_text(TokenId id) const = 0;
  // The same, but empty for control tokens: what a user gets to see.
  std::string_view token_bytes(TokenId id) const { return is_special(id) ? std::string_view() : token_text(id); }

  virtual DecodeRules decode_rules() const { return {}; }
  virtual bool is_byte(TokenId) const { return false; }
  // Nothing when there is no such token.
  virtual std::optional<std::string> first_token_text(TokenId id) const;

  virtual std::size_t vocab_size() const = 0;  // highest id + 1
  virtual bool is_special(TokenId id) const = 0;

  // The control token of that text, if there is one.
  virtual std::optional<TokenId> special_id(std::string_view text) const = 0;
  virtual std::optional<TokenId> bos_id() const = 0;
  virtual bool adds_bos() const = 0;
  // Ids that end a generation as far as the tokenizer's files say; a model's config may name more.
  virtual std::span<const TokenId> eos_ids() const = 0;

  // Equal digests mean that equal text gives equal ids.
  virtual Digest digest() const = 0;

  // Valid UTF-8: bytes that form no character become U+FFFD as in Python's errors="replace", or as decode_rules() say.
  std::string decode(std::span<const TokenId> ids, bool skip_special = true) const;
};

// The tokenizer of a checkpoint folder: tokenizer.json and, if there, tokenizer_config.json (bos_token, eos_token,
// add_bos_token). What isn't supported is an error that names file and construct.
Result<std::unique_ptr<Tokenizer>> load_tokenizer(const Path& folder);

}  // namespace nmc::model
