#include "model/gguf_model.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <set>
#include <utility>

#include "base/dtype.h"
#include "model/checkpoint.h"
#include "model/printable_name.h"
#include "model/safetensors.h"
#include "model/size_limits.h"
#include "model/weights_digest.h"

namespace nmc::model {
namespace {

struct Family {
  std::string_view architecture;
  bool qkv_bias;
  bool qk_norm;
  bool paired_rows;  // queries and keys are kept in rotated pairs
};
constexpr std::array kFamilies = {Family{"llama", false, false, true}, Family{"qwen2", true, false, false},
                                  Family{"qwen3", false, true, false}};

const Family* find_family(std::string_view architecture) {
  const auto it = std::ranges::find(kFamilies, architecture, &Family::architecture);
  return it == kFamilies.end() ? nullptr : &*it;
}

// Names inside a layer, Hugging Face's and llama.cpp's.
struct LayerName {
  std::string_view ours;
  std::string_view gguf;
};
constexpr std::array kLayerNames = {
    LayerName{"input_layernorm", "attn_norm"},    LayerName{"post_attention_layernorm", "ffn_norm"},
    LayerName{"self_attn.q_proj", "attn_q"},      LayerName{"self_attn.k_proj", "attn_k"},
    LayerName{"self_attn.v_proj", "attn_v"},      LayerName{"self_attn.o_proj", "attn_output"},
    LayerName{"self_attn.q_norm", "attn_q_norm"}, LayerName{"self_attn.k_norm", "attn_k_norm"},
    LayerName{"mlp.gate_proj", "ffn_gate"},       LayerName{"mlp.up_proj", "ffn_up"},
    LayerName{"mlp.down_proj", "ffn_down"}};

// "model.layers.3.self_attn.q_proj.weight" to "blk.3.attn_q.weight".
std::string gguf_name(std::string_view name) {
  if (name == "model.embed_tokens.weight") return "token_embd.weight";
  if (name == "model.norm.weight") return "output_norm.weight";
  if (name == "lm_head.weight") return "output.weight";
  constexpr std::string_view kPrefix = "model.layers.";
  if (!name.starts_with(kPrefix)) return std::string(name);
  const std::size_t dot = name.find('.', kPrefix.size());
  const std::string_view layer = name.substr(kPrefix.size(), dot - kPrefix.size());
  const std::size_t last = name.rfind('.');
  const std::string_view inner = name.substr(dot + 1, last - dot - 1);
  const auto it = std::ranges::find(kLayerNames, inner, &LayerName::ours);
  if (it == kLayerNames.end()) return std::string(name);
  return fmt::format("blk.{}.{}{}", layer, it->gguf, name.substr(last));
}

// Reads the members of one architecture: `key("block_count")` is "llama.block_count".
class Metadata {
 public:
  Metadata(const GgufHeader& header, std::string_view architecture)
      : header_(header), fields_(header.metadata), architecture_(architecture) {}

  std::string key(std::string_view name) const { return fmt::format("{}.{}", architecture_, name); }
  bool has(std::string_view name) const { return fields_.find(key(name)) != nullptr; }
  Result<std::size_t> size(std::string_view name, std::int64_t high) const {
    NMC_ASSIGN_OR_RETURN(const std::int64_t value, fields_.integer(key(name), 1, high));
    return static_cast<std::size_t>(value);
  }
  Result<std::size_t> size_or(std::string_view name, std::int64_t high, std::size_t absent) const {
    if (!has(name)) return absent;
    return size(name, high);
  }
  Result<double> number_or(std::string_view name, double low, double high, double absent) const {
    return fields_.number_or(key(name), low, high, absent);
  }
  Result<std::string> string_or(std::string_view name, std::string absent) const {
    return fields_.string_or(key(name), std::move(absent));
  }
  const JsonFields& fields() const { return fields_; }
  const GgufHeader& header() const { return header_; }

 private:
  const GgufHeader& header_;
  const JsonFields fields_;
  std::string architecture_;
};

Result<void> read_sizes(const Metadata& metadata, ModelConfig& config) {
  NMC_ASSIGN_OR_RETURN(config.layers, metadata.size("block_count", kLayersMax));
  NMC_ASSIGN_OR_RETURN(config.hidden, metadata.size("embedding_length", kWidthMax));
  NMC_ASSIGN_OR_RETURN(config.intermediate, metadata.size("feed_forward_length", kWidthMax));
  NMC_ASSIGN_OR_RETURN(config.heads, metadata.size("attention.head_count", kHeadsMax));
  NMC_ASSIGN_OR_RETURN(config.kv_heads, metadata.size_or("attention.head_count_kv", kHeadsMax, config.heads));
  if (config.heads % config.kv_heads != 0) {
    return invalid_argument("`{}`: expected a divisor of the {} query heads, got {}",
                            metadata.key("attention.head_count_kv"), config.heads, config.kv_heads);
  }
  NMC_ASSIGN_OR_RETURN(config.head_dim,
                       metadata.size_or("attention.key_length", kHeadDimMax, config.hidden / config.heads));
  NMC_ASSIGN_OR_RETURN(const std::size_t value_length,
                       metadata.size_or("attention.value_length", kHeadDimMax, config.head_dim));
  NMC_ASSIGN_OR_RETURN(const std::size_t rotated,
                       metadata.size_or("rope.dimension_count", kHeadDimMax, config.head_dim));
  if (config.head_dim % 2 != 0 || value_length != config.head_dim || rotated != config.head_dim) {
    return unsupported("heads of {} dimensions, {} of them rotated, with values of {}: expected one even number",
                       config.head_dim, rotated, value_length);
  }
  if (config.q_size() > std::size_t{kWidthMax} || config.head_dim > std::size_t{kHeadDimMax}) {
    return invalid_argument("`{}`: {} heads of {} dimensions are more than {} together",
                            metadata.key("attention.head_count"), config.heads, config.head_dim, kWidthMax);
  }
  NMC_ASSIGN_OR_RETURN(config.max_positions, metadata.size_or("context_length", kPositionsMax, 2048));
  return {};
}

Result<void> read_vocab(const Metadata& metadata, ModelConfig& config) {
  const GgufTensor* embedding = metadata.header().find("token_embd.weight");
  if (embedding == nullptr || embedding->shape.size() != 2) {
    return corrupt("tensor token_embd.weight: expected a table of two dimensions, it is {}",
                   embedding == nullptr ? "missing" : shape_text(embedding->shape));
  }
  if (embedding->shape[0] > std::uint64_t{kVocabMax}) {
    return corrupt("tensor token_embd.weight: expected at most {} rows, got {}", kVocabMax, embedding->shape[0]);
  }
  config.vocab = embedding->shape[0];
  const auto last = static_cast<std::int64_t>(config.vocab) - 1;
  NMC_ASSIGN_OR_RETURN(const auto bos, read_token_ids(metadata.fields(), "tokenizer.ggml.bos_token_id", last));
  if (!bos.empty()) config.bos_id = bos.front();
  // The end of a text and, where a file names it, the end of a turn.
  for (const char* name : {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id"}) {
    NMC_ASSIGN_OR_RETURN(const auto ids, read_token_ids(metadata.fields(), name, last));
    for (const kv::TokenId id : ids) {
      if (std::ranges::find(config.eos_ids, id) == config.eos_ids.end()) config.eos_ids.push_back(id);
    }
  }
  return {};
}

Result<void> read_rope(const Metadata& metadata, ModelConfig& config) {
  NMC_ASSIGN_OR_RETURN(const double theta, metadata.number_or("rope.freq_base", 1.0, 1e12, 10000.0));
  config.rope_theta = static_cast<float>(theta);
  NMC_ASSIGN_OR_RETURN(const std::string type, metadata.string_or("rope.scaling.type", "none"));
  NMC_ASSIGN_OR_RETURN(const double factor, metadata.number_or("rope.scaling.factor", 1e-3, 1e9, 1.0));
  if (type == "linear") {
    config.rope_scaling = {.kind = RopeScaling::Kind::kLinear, .factor = static_cast<float>(factor)};
  } else if (type != "none") {
    return unsupported("`{}`: expected \"none\" or \"linear\", got {}", metadata.key("rope.scaling.type"),
                       describe_json(Json(type)));
  }
  return {};
}

Result<ModelConfig> read_config(const GgufHeader& header) {
  NMC_ASSIGN_OR_RETURN(const std::string architecture, JsonFields(header.metadata).string("general.architecture"));
  const Family* family = find_family(architecture);
  if (family == nullptr) {
    return unsupported("`general.architecture`: expected llama, qwen2 or qwen3, got {}",
                       describe_json(Json(architecture)));
  }
  const Metadata metadata(header, architecture);
  ModelConfig config;
  config.model_type = architecture;
  NMC_RETURN_IF_ERROR(read_sizes(metadata, config));
  NMC_RETURN_IF_ERROR(read_vocab(metadata, config));
  NMC_RETURN_IF_ERROR(read_rope(metadata, config));
  NMC_ASSIGN_OR_RETURN(const double epsilon, metadata.number_or("attention.layer_norm_rms_epsilon", 1e-12, 1.0, 1e-6));
  config.rms_epsilon = static_cast<float>(epsilon);
  NMC_ASSIGN_OR_RETURN(const std::size_t window, metadata.size_or("attention.sliding_window", kPositionsMax, 0));
  if (window > 0) config.windows.assign(config.layers, window);
  config.qkv_bias = family->qkv_bias || header.find("blk.0.attn_q.bias") != nullptr;
  config.out_bias = header.find("blk.0.attn_output.bias") != nullptr;
  config.qk_norm = family->qk_norm;
  config.tie_embeddings = header.find("output.weight") == nullptr;
  return config;
}

bool is_paired(const GgufHeader& header, std::string_view name) {
  const auto it = header.metadata.find("general.architecture");
  const Family* family = find_family(it->get_ref<const std::string&>());
  return family->paired_rows &&
         (name.find("self_attn.q_proj.") != name.npos || name.find("self_attn.k_proj.") != name.npos);
}

std::optional<Dtype> plain_type(const GgufType& type) {
  if (type.name == "F32") return Dtype::kF32;
  if (type.name == "F16") return Dtype::kF16;
  if (type.name == "BF16") return Dtype::kBf16;
  return std::nullopt;
}

}  // namespace

Result<ModelConfig> gguf_config(const GgufHeader& header, std::string_view path) {
  Result<ModelConfig> config = read_config(header);
  if (!config) return Failure(std::move(config).error().with_context(path));
  return config;
}

Result<GgufFile> GgufFile::open(const Path& path) {
  GgufFile file;
  file.path_ = path;
  NMC_ASSIGN_OR_RETURN(file.mapping_, map_file(path));
  NMC_ASSIGN_OR_RETURN(file.header_, parse_gguf(std::as_const(file.mapping_).bytes(), path.string()));
  NMC_ASSIGN_OR_RETURN(file.config_, gguf_config(file.header_, path.string()));
  const GgufTensor* divisors = file.header_.find("rope_freqs.weight");
  if (divisors != nullptr) {  // Llama 3's scaling, worked out when the file was made
    const GgufType* type = find_gguf_type(divisors->type_id);
    if (type == nullptr || type->name != "F32" ||
        divisors->shape != std::vector<std::uint64_t>{file.config_.head_dim / 2}) {
      return corrupt("{}: tensor rope_freqs.weight: expected {} numbers of F32", path.string(),
                     file.config_.head_dim / 2);
    }
    file.config_.rope_scaling.kind = RopeScaling::Kind::kDivisors;
    file.config_.rope_scaling.divisors.resize(file.config_.head_dim / 2);
    widen_gguf(*type, file.bytes(*divisors).data(), file.config_.head_dim / 2,
               file.config_.rope_scaling.divisors.data());
    for (const float divisor : file.config_.rope_scaling.divisors) {
      if (!(divisor > 0.0f)) return corrupt("{}: tensor rope_freqs.weight: expected numbers above 0", path.string());
    }
  }
  NMC_RETURN_IF_ERROR(file.validate());
  return file;
}

Result<void> GgufFile::validate() const {
  std::set<std::string> expected_names = {"rope_freqs.weight"};
  for (const ExpectedTensor& expected : expected_tensors(config_)) {
    const std::string name = gguf_name(expected.name);
    const GgufTensor* found = header_.find(name);
    if (found == nullptr) return corrupt("{}: tensor {} is missing", path_.string(), name);
    if (found->shape != expected.shape) {
      return corrupt("{}: tensor {}: the metadata makes its shape {}, the file has {}", path_.string(), name,
                     shape_text(expected.shape), shape_text(found->shape));
    }
    if (find_gguf_type(found->type_id) == nullptr) {
      return unsupported("{}: tensor {}: expected F32, F16, BF16, Q8_0, Q4_0 or Q4_1, got ggml type {}", path_.string(),
                         name, found->type_id);
    }
    expected_names.insert(name);
  }
  for (const GgufTensor& tensor : header_.tensors) {
    if (!expected_names.contains(tensor.name)) {
      return corrupt("{}: tensor {} has no place in a model of type {}", path_.string(), printable_name(tensor.name),
                     config_.model_type);
    }
  }
  return {};
}

Result<Weights> GgufWeights::tensor(const std::string& name, std::size_t rows, std::size_t columns) {
  const std::string gguf = gguf_name(name);
  const GgufTensor* found = file_.header().find(gguf);
  if (found == nullptr) return not_found("{}: tensor {} is missing", file_.path().string(), gguf);
  const GgufType* type = find_gguf_type(found->type_id);
  std::uint64_t elements = 1;
  for (const std::uint64_t size : found->shape) elements *= size;
  if (type == nullptr || elements != rows * columns) {
    return corrupt("{}: tensor {}: expected [{}, {}] of a type that is read, got {}", file_.path().string(), gguf, rows,
                   columns, shape_text(found->shape));
  }
  const std::byte* const from = file_.bytes(*found).data();
  const std::optional<Dtype> plain = plain_type(*type);
  const bool paired = is_paired(file_.header(), name);
  const bool aligned = reinterpret_cast<std::uintptr_t>(from) % 4 == 0;
  if (plain && !paired && aligned) return Weights{from, *plain};

  // A bias is one row to the caller; its elements are what is paired.
  const std::size_t units = name.ends_with(".bias") ? columns : rows;
  const std::size_t width = elements / units;
  const Dtype dtype = plain.value_or(Dtype::kF32);
  const std::size_t unit_bytes = width * dtype_bytes(dtype);
  const std::size_t half = file_.config().head_dim / 2;
  buffer_.resize(units * unit_bytes);
  pool_.parallel_for(units, 64, [&](std::size_t begin, std::size_t end, int) {
    for (std::size_t unit = begin; unit < end; ++unit) {
      // Row r of the halves of a head: which half, which pair.
      const std::size_t in_head = unit % (2 * half);
      const std::size_t source = paired ? unit - in_head + in_head % half * 2 + in_head / half : unit;
      std::byte* const to = buffer_.data() + unit * unit_bytes;
      if (plain) {
        std::memcpy(to, from + source * unit_bytes, unit_bytes);
      } else {
        widen_gguf(*type, from + source * width / type->elements * type->bytes, width, reinterpret_cast<float*>(to));
      }
    }
  });
  return Weights{buffer_.data(), dtype};
}

std::string GgufWeights::digest() {
  std::vector<NamedTensor> tensors;
  for (const GgufTensor& tensor : file_.header().tensors) {
    const GgufType* type = find_gguf_type(tensor.type_id);
    tensors.push_back({tensor.name, type == nullptr ? "" : std::string(type->name), tensor.shape, file_.bytes(tensor)});
  }
  std::ranges::sort(tensors, {}, &NamedTensor::name);
  return weights_digest(tensors, pool_).hex();
}

}  // namespace nmc::model
