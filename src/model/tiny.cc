#include "model/tiny.h"

#include "model/byte_tokenizer.h"
#include "model/weight_source.h"

namespace nmc::model {
namespace {

// Column 0 of the residual stream is held constant: the embedding sets it, no layer adds to it, and the head reads it
// as a bias per id.
constexpr float kConstant = 4.0f;

// How much less likely an id is than a lower-case letter, in units of the constant column after the last norm.
float head_bias(std::size_t id) {
  if ((id >= 'a' && id <= 'z') || id == ' ') return 0.0f;
  if (id > ' ' && id < 127) return -1.0f;  // other printable ASCII
  return -3.0f;
}

float adjust(std::string_view name, std::size_t row, std::size_t column, float drawn) {
  if (name == "model.embed_tokens.weight") return column == 0 ? kConstant : drawn * 11.3f;  // about unit variance
  if (name == "lm_head.weight") return column == 0 ? head_bias(row) : drawn * 2.0f;
  const bool writes_residual = name.ends_with("o_proj.weight") || name.ends_with("down_proj.weight");
  return writes_residual && row == 0 ? 0.0f : drawn;
}

}  // namespace

ModelConfig tiny_config() {
  ModelConfig config;
  config.model_type = "llama";
  config.layers = 4;
  config.hidden = 128;
  config.heads = 4;
  config.kv_heads = 2;
  config.head_dim = 32;
  config.intermediate = 256;
  config.vocab = ByteTokenizer::kVocabSize;
  config.max_positions = 8192;
  config.rms_epsilon = 1e-5f;
  config.bos_id = ByteTokenizer::kBos;
  config.eos_ids = {ByteTokenizer::kEos, ByteTokenizer::kEnd};
  return config;
}

Result<std::unique_ptr<Decoder>> make_tiny_decoder(Dtype dtype, ThreadPool& pool, std::uint64_t seed,
                                                   const PackOptions& options) {
  RandomWeights weights(seed, pool, adjust, "tiny");
  return Decoder::create(tiny_config(), weights, dtype, pool, options);
}

}  // namespace nmc::model
