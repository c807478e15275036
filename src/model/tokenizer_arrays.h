// Tokenizers from plain arrays, as the metadata of GGUF files has them.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "model/tokenizer.h"

namespace nmc::model {

struct TokenizerArrays {
  // What an entry of `types` says; other numbers count as normal.
  enum Type : std::int32_t { kNormal = 1, kUnknown = 2, kControl = 3, kUserDefined = 4, kUnused = 5, kByte = 6 };

  std::vector<std::string> tokens;  // by id; "" and repetitions stand for themselves when decoded and are never made
  std::vector<float> scores;        // make_spm_tokenizer: as many as tokens
  std::vector<std::int32_t> types;  // none, or as many as tokens
  std::vector<std::string> merges;  // make_bpe_tokenizer: "a b", the first goes first
  std::string pre_tokenizer;        // make_bpe_tokenizer: see is_known_pre_tokenizer()
  std::optional<TokenId> bos_id;
  std::optional<TokenId> eos_id;
  std::optional<bool> add_bos;   // absent: make_spm_tokenizer does, make_bpe_tokenizer doesn't
  bool add_space_prefix = true;  // make_spm_tokenizer: in front of each stretch of text
};

// SentencePiece's BPE, as Llama 2, TinyLlama and the first Mistrals have it: of all neighbours whose joined text is a
// token, those of the highest score join, the leftmost first. Text that is no token is spelled in byte tokens <0xNN>.
// Fails with the array and the place that is wrong; origins (file names) are the caller's to add.
Result<std::unique_ptr<Tokenizer>> make_spm_tokenizer(TokenizerArrays arrays);

// BPE over bytes, whose texts are in the byte alphabet.
Result<std::unique_ptr<Tokenizer>> make_bpe_tokenizer(TokenizerArrays arrays);

// Names of `tokenizer.ggml.pre` that make_bpe_tokenizer() takes: "gpt-2", "llama-bpe", "qwen2", "smollm", ...
bool is_known_pre_tokenizer(std::string_view name);

}  // namespace nmc::model
