// BPE over bytes, as GPT-2, Llama 3, Qwen and most others have it, or over characters with bytes as a last resort, as
// Llama 2, TinyLlama and Mistral do; equal to the Python package `tokenizers` on the files it reads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "model/added_tokens.h"
#include "model/bpe_merger.h"
#include "model/symbols.h"
#include "model/tokenizer.h"
#include "model/tokenizer_file.h"

namespace nmc::model {

// What tokenizer_config.json says beside tokenizer.json.
struct TokenizerConfig {
  std::string bos_token;  // "" = none
  std::string eos_token;
  std::optional<bool> add_bos_token;  // wins over the post-processor's template
};

// `name` is the file in messages.
Result<TokenizerConfig> parse_tokenizer_config(std::string_view json, std::string_view name);

class BpeTokenizer final : public Tokenizer {
 public:
  static Result<std::unique_ptr<BpeTokenizer>> load(const Path& folder);

  // From parsed parts. `source` is hashed for digest(): what the parts were parsed from. Fails when the config names a
  // token that doesn't exist or asks for a start token and names none.
  static Result<std::unique_ptr<BpeTokenizer>> make(TokenizerFile file, const TokenizerConfig& config,
                                                    std::string_view source);

  // What neither the vocabulary nor an unknown token covers is left out, as in the Python package.
  std::vector<TokenId> encode_parts(std::span<const TextPart> parts, bool add_bos = false) const override;
  std::string_view token_text(TokenId id) const override;
  DecodeRules decode_rules() const override;
  bool is_byte(TokenId id) const override { return id < is_byte_.size() && is_byte_[id]; }
  std::optional<std::string> first_token_text(TokenId id) const override;
  std::size_t vocab_size() const override { return texts_.size(); }
  bool is_special(TokenId id) const override { return id < is_special_.size() && is_special_[id]; }
  std::optional<TokenId> special_id(std::string_view text) const override;
  std::optional<TokenId> bos_id() const override { return bos_id_; }
  bool adds_bos() const override { return adds_bos_; }
  std::span<const TokenId> eos_ids() const override { return eos_ids_; }
  Digest digest() const override { return digest_; }

 private:
  class Encoding;  // the state of one encode()

  explicit BpeTokenizer(TokenizerFile file, AddedTokenMatcher normalized);
  void encode_section(std::string_view section, std::vector<MarkerRange> ranges, bool at_start,
                      Encoding& encoding) const;
  std::vector<MarkerRange> normalized_ranges(std::string_view section, std::vector<MarkerRange> ranges,
                                             std::string_view normalized) const;

  std::vector<bool> is_special_;
  SymbolTable symbols_;
  BpeMerger merger_;
  std::unordered_map<std::string, TokenId> whole_pieces_;  // only for ignore_merges
  bool cuts_at_marks_ = false;                             // pieces may be cut before the mark of a space
  Normalizer normalizer_;
  PreTokenizer pre_tokenizer_;
  AddedTokenMatcher exact_;       // first
  AddedTokenMatcher normalized_;  // in what is left, after the normalizer
  TokenDecoder decoder_;
  std::vector<std::string> texts_;      // what each id stands for
  std::vector<std::string> raw_texts_;  // before the decoder's steps; only where a first token differs
  std::vector<bool> is_byte_;
  std::unordered_map<std::string, TokenId> special_ids_;
  std::optional<TokenId> bos_id_;
  bool adds_bos_ = false;
  std::vector<TokenId> eos_ids_;
  Digest digest_;
};

}  // namespace nmc::model
