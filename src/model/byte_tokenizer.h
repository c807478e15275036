// The tokenizer of the built-in `tiny` model: a token is a byte, control tokens follow.
#pragma once

#include "model/tokenizer.h"

namespace nmc::model {

class ByteTokenizer final : public Tokenizer {
 public:
  static constexpr TokenId kBos = 256;
  static constexpr TokenId kEos = 257;
  static constexpr TokenId kSystem = 258;  // opens a turn of that role
  static constexpr TokenId kUser = 259;
  static constexpr TokenId kAssistant = 260;
  static constexpr TokenId kTool = 261;
  static constexpr TokenId kEnd = 262;  // closes a turn
  static constexpr std::size_t kVocabSize = 263;

  std::vector<TokenId> encode_parts(std::span<const TextPart> parts, bool add_bos = false) const override;
  std::string_view token_text(TokenId id) const override;
  std::size_t vocab_size() const override { return kVocabSize; }
  bool is_special(TokenId id) const override { return id >= kBos && id < kVocabSize; }
  std::optional<TokenId> special_id(std::string_view text) const override;
  std::optional<TokenId> bos_id() const override { return kBos; }
  // A plain prompt of n bytes is n tokens.
  bool adds_bos() const override { return false; }
  std::span<const TokenId> eos_ids() const override;
  Digest digest() const override;
};

}  // namespace nmc::model
