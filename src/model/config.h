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

// How rotary frequencies are stretched for contexts longer than the model was first trained on.
struct RopeScaling {
  enum class Kind {
    kNone,
    kLinear,    // all frequencies divided by `factor`
    kLlama3,    // the low ones divided by `factor`, the high ones kept, and those between joined smoothly
    kDivisors,  // each divided by its own of `divisors`
  };
  Kind kind = Kind::kNone;
  float factor = 1.0f;
  // kLlama3: a frequency is low when fewer than low_freq_factor of its turns fit into original_max_positions, and high
  // when more than high_freq_factor do.
  float low_freq_factor = 1.0f;
  float high_freq_factor = 4.0f;
  float original_max_positions = 8192.0f;
  std::vector<float> divisors;  // kDivisors: [head_dim / 2]

  bool operator==(const RopeScaling&) const = default;
};

// A plain value. From parse_config() all sizes are at least 1, heads is a multiple of kv_heads, head_dim is even, and
// products of any few of them fit in 64 bits. They are claims about tensors: nothing may be allocated by them alone
// until Checkpoint::validate() found the tensors.
struct ModelConfig {
  std::string model_type;  // "llama", "mistral", "qwen2", "qwen3"
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
  RopeScaling rope_scaling;
  bool qkv_bias = false;  // after the projections to queries, keys and values
  bool out_bias = false;  // after attention's output projection
  bool mlp_bias = false;  // after all three projections of the MLP
  bool qk_norm = false;   // each head's query and key is normed before it is rotated
  // By layer: positions that one position sees, itself included; 0: all before it. Empty: 0 in every layer.
  std::vector<std::size_t> windows;
  bool tie_embeddings = false;  // the output projection is the embedding
  std::optional<kv::TokenId> bos_id;
  std::vector<kv::TokenId> eos_ids;  // generation ends at any of them
  std::string dtype;                 // as the file says ("bfloat16"), "" if it doesn't; tensors carry their own

  std::size_t q_size() const { return heads * head_dim; }
  std::size_t kv_size() const { return kv_heads * head_dim; }
  std::size_t window(std::size_t layer) const { return windows.empty() ? 0 : windows[layer]; }
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
