// What a model keeps of a token, by its attention: enough to say how large a KV cache is, for models that can't be
// served here, too.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/files.h"
#include "base/json.h"
#include "base/result.h"

namespace nmc::sim {

enum class Attention {
  kMha,  // a key and a value for each head
  kGqa,  // for each group of heads
  kMqa,  // one for all
  kMla,  // a latent and a rotated part that all heads share, in place of keys and values
};

const char* attention_name(Attention attention);  // "mha", ...
std::optional<Attention> parse_attention(std::string_view name);

// Element counts; all at least 1 where the attention has them.
struct KvShape {
  std::string name;  // of the model; "": given by numbers
  Attention attention = Attention::kGqa;
  std::uint64_t layers = 32;
  std::uint64_t heads = 32;         // of queries
  std::uint64_t kv_heads = 8;       // kMha: `heads`; kMqa: 1; kMla: without a meaning
  std::uint64_t key_dim = 128;      // of a head
  std::uint64_t value_dim = 128;    // of a head
  std::uint64_t latent_dim = 512;   // kMla: kv_lora_rank
  std::uint64_t rope_dim = 64;      // kMla: qk_rope_head_dim
  std::uint64_t window = 0;         // tokens a layer attends to, where it says so; 0: all
  std::uint64_t element_bytes = 2;  // as the checkpoint has them

  // Elements of a layer that a token takes, over all heads.
  std::uint64_t layer_elements() const {
    return attention == Attention::kMla ? latent_dim + rope_dim : kv_heads * (key_dim + value_dim);
  }
};

// The shape of another attention with the same layers and heads, for comparison: MHA with all heads, GQA as `shape` has
// it or else in groups of 8, MQA with one, MLA with the latent of `shape` (that of DeepSeek by default).
KvShape with_attention(const KvShape& shape, Attention attention);

// From a config.json of Hugging Face, or the folder that has one: Llama, Mistral, Qwen and what names its sizes alike
// (also under `text_config`), and DeepSeek-V2/V3 with MLA. Errors name the file, the field and what was expected.
Result<KvShape> read_kv_shape(const Path& path);
Result<KvShape> kv_shape_from_json(const Json& config);

}  // namespace nmc::sim
