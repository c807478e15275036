// Shape of a decoder-only model, read from a Hugging Face `config.json`. Only what is understood in full is accepted: a
// field that would change the forward pass and that we don't do is an error, never ignored.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/files.h"
#include "base/json.h"
#include "base/result.h"
#include "kv/prefix.h"

namespace nmc::model {

// A plain value. From parse_config() all sizes are at least 1, heads is a multiple of kv_heads, head_dim is even, and
// products of any few of them fit in 64 bits. They are claims about tensors: nothing may be allocated by them alone
// until Checkpoint::validate() found the tensors.
struct ModelConfig {
  std::string model_type;  // "llama"
  std::size_t layers = 0;
  std::size_t hidden = 0;  // width of the residual stream
  std::size_t heads = 0;   // query heads
  std::size_t kv_heads = 0;
  std::size_t head_dim = 0;
  std::size_t intermediate = 0;   // width inside the MLP
  std::size_t vocab = 0;          // rows of the embedding; may exceed the tokenizer's vocabulary
  std::size_t max_positions = 0;  // prompt plus output tokens
  float rms_epsilon = 1e-6f;
  float rope_theta = 10000.0f;
  bool tie_embeddings = false;  // the output projection is the embedding
  std::optional<kv::TokenId> bos_id;
  std::vector<kv::TokenId> eos_ids;  // generation ends at any of them
  std::string dtype;                 // as the file says ("bfloat16"), "" if it doesn't; tensors carry their own

  std::size_t q_size() const { return heads * head_dim; }
  std::size_t kv_size() const { return kv_heads * head_dim; }
  std::size_t parameters() const;

  // What shapes the forward pass, the weights aside, as one line for kv::Namespace::config. Equal texts mean that equal
  // weights and tokens give equal KV.
  std::string digest_text() const;

  bool operator==(const ModelConfig&) const = default;
};

// `path` names the file in messages: "/x/config.json: `hidden_act`: expected \"silu\", got \"gelu\"".
Result<ModelConfig> parse_config(const Json& json, std::string_view path);

// A member that is one id, an array of ids, or absent or null (none); each from 0 to `last`.
Result<std::vector<kv::TokenId>> read_token_ids(const JsonFields& fields, std::string_view name, std::int64_t last);

// Reads and parses one file.
Result<ModelConfig> read_config(const Path& path);

}  // namespace nmc::model
