#include "model/config.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "model/size_limits.h"

namespace nmc::model {
namespace {

constexpr std::size_t kParametersMax = std::size_t{1} << 42;
constexpr std::int64_t kConfigBytesMax = 16 << 20;

// What `attention_bias` means to a family.
enum class AttentionBias { kNever, kAsSaid, kQkvAlways };

// A family is a model_type of Hugging Face with the architecture that goes with it, and what its configuration class
// takes an absent field for.
struct Family {
  std::string_view model_type;
  std::string_view architecture;
  AttentionBias attention_bias;
  bool mlp_bias;  // reads `mlp_bias`
  bool qk_norm;
  bool window_switch;           // `sliding_window` counts only with `use_sliding_window`, from `max_window_layers` on
  std::size_t absent_window;    // of an absent `sliding_window`; 0: the family has no windows
  std::size_t absent_head_dim;  // 0: hidden_size / num_attention_heads
  std::size_t absent_positions;
};
constexpr std::array kFamilies = {
    Family{"llama", "LlamaForCausalLM", AttentionBias::kAsSaid, true, false, false, 0, 0, 2048},
    Family{"mistral", "MistralForCausalLM", AttentionBias::kNever, false, false, false, 4096, 0, 131072},
    Family{"qwen2", "Qwen2ForCausalLM", AttentionBias::kQkvAlways, false, false, true, 4096, 0, 32768},
    Family{"qwen3", "Qwen3ForCausalLM", AttentionBias::kAsSaid, false, true, true, 4096, 128, 32768},
};
constexpr std::size_t kAbsentMaxWindowLayers = 28;  // of Qwen2 and Qwen3

std::string supported_families() {
  std::string text;
  for (const Family& family : kFamilies) {
    if (!text.empty()) text += ", ";
    text += fmt::format("{} (\"{}\")", family.architecture, family.model_type);
  }
  return text;
}

Result<const Family*> find_family(const JsonFields& fields) {
  NMC_ASSIGN_OR_RETURN(const std::string model_type, fields.string("model_type"));
  for (const Family& family : kFamilies) {
    if (family.model_type != model_type) continue;
    const Json* architectures = fields.find("architectures");
    if (architectures == nullptr) return &family;
    if (architectures->is_array() && architectures->size() == 1 && architectures->front().is_string() &&
        architectures->front().get<std::string>() == family.architecture) {
      return &family;
    }
    return unsupported("`architectures`: expected [\"{}\"], got {}", family.architecture,
                       describe_json(*architectures));
  }
  return unsupported("`model_type`: expected one of {}, got {}", supported_families(),
                     describe_json(*fields.find("model_type")));
}

Result<std::size_t> size_field(const JsonFields& fields, std::string_view name, std::int64_t high) {
  NMC_ASSIGN_OR_RETURN(const std::int64_t value, fields.integer(name, 1, high));
  return static_cast<std::size_t>(value);
}

Result<std::size_t> size_field_or(const JsonFields& fields, std::string_view name, std::int64_t high,
                                  std::size_t absent) {
  if (fields.find(name) == nullptr) return absent;
  return size_field(fields, name, high);
}

Result<void> read_sizes(const JsonFields& fields, const Family& family, ModelConfig& config) {
  NMC_ASSIGN_OR_RETURN(config.layers, size_field(fields, "num_hidden_layers", kLayersMax));
  NMC_ASSIGN_OR_RETURN(config.hidden, size_field(fields, "hidden_size", kWidthMax));
  NMC_ASSIGN_OR_RETURN(config.intermediate, size_field(fields, "intermediate_size", kWidthMax));
  NMC_ASSIGN_OR_RETURN(config.vocab, size_field(fields, "vocab_size", kVocabMax));
  NMC_ASSIGN_OR_RETURN(config.max_positions,
                       size_field_or(fields, "max_position_embeddings", kPositionsMax, family.absent_positions));
  return {};
}

Result<void> read_head_dim(const JsonFields& fields, const Family& family, ModelConfig& config) {
  if (fields.find("head_dim") != nullptr) {
    NMC_ASSIGN_OR_RETURN(config.head_dim, size_field(fields, "head_dim", kHeadDimMax));
  } else if (family.absent_head_dim != 0) {
    config.head_dim = family.absent_head_dim;
  } else if (config.hidden % config.heads != 0) {
    return invalid_argument(
        "`num_attention_heads`: expected a divisor of `hidden_size` ({}), as `head_dim` is absent, got {}",
        config.hidden, config.heads);
  } else {
    config.head_dim = config.hidden / config.heads;
  }
  if (config.head_dim % 2 != 0 || config.head_dim > std::size_t{kHeadDimMax}) {
    return invalid_argument("`head_dim`: expected an even number up to {}, got {}", kHeadDimMax, config.head_dim);
  }
  return {};
}

Result<void> read_heads(const JsonFields& fields, const Family& family, ModelConfig& config) {
  NMC_ASSIGN_OR_RETURN(config.heads, size_field(fields, "num_attention_heads", kHeadsMax));
  NMC_ASSIGN_OR_RETURN(config.kv_heads, size_field_or(fields, "num_key_value_heads", kHeadsMax, config.heads));
  if (config.heads % config.kv_heads != 0) {
    return invalid_argument("`num_key_value_heads`: expected a divisor of `num_attention_heads` ({}), got {}",
                            config.heads, config.kv_heads);
  }
  NMC_RETURN_IF_ERROR(read_head_dim(fields, family, config));
  if (config.q_size() > std::size_t{kWidthMax}) {
    return invalid_argument("`num_attention_heads` times `head_dim`: expected at most {}, got {} times {}", kWidthMax,
                            config.heads, config.head_dim);
  }
  return {};
}

Result<float> positive(const JsonFields& fields, std::string_view name) {
  if (fields.find(name) == nullptr)
    return invalid_argument("`{}`: expected a number, it is absent", fields.path_of(name));
  NMC_ASSIGN_OR_RETURN(const double value, fields.number_or(name, 1e-3, 1e9, 1.0));
  return static_cast<float>(value);
}

Result<RopeScaling> read_llama3_scaling(const JsonFields& fields) {
  RopeScaling scaling{.kind = RopeScaling::Kind::kLlama3};
  NMC_ASSIGN_OR_RETURN(scaling.factor, positive(fields, "factor"));
  NMC_ASSIGN_OR_RETURN(scaling.low_freq_factor, positive(fields, "low_freq_factor"));
  NMC_ASSIGN_OR_RETURN(scaling.high_freq_factor, positive(fields, "high_freq_factor"));
  NMC_ASSIGN_OR_RETURN(scaling.original_max_positions, positive(fields, "original_max_position_embeddings"));
  if (scaling.high_freq_factor <= scaling.low_freq_factor) {
    return invalid_argument("`{}`: expected more than `low_freq_factor` ({}), got {}",
                            fields.path_of("high_freq_factor"), scaling.low_freq_factor, scaling.high_freq_factor);
  }
  return scaling;
}

// `name` is rope_scaling of older exports or rope_parameters of newer ones.
Result<void> read_rope_object(const JsonFields& fields, std::string_view name, ModelConfig& config) {
  const Json* object = fields.find(name);
  if (object == nullptr) return {};
  if (!object->is_object()) {
    return invalid_argument("`{}`: expected an object or null, got {}", name, describe_json(*object));
  }
  const JsonFields inner(*object, std::string(name));
  NMC_ASSIGN_OR_RETURN(const double theta, inner.number_or("rope_theta", 1.0, 1e12, double{config.rope_theta}));
  config.rope_theta = static_cast<float>(theta);
  NMC_ASSIGN_OR_RETURN(std::string type, inner.string_or("type", "default"));
  NMC_ASSIGN_OR_RETURN(type, inner.string_or("rope_type", type));
  if (type == "llama3") {
    NMC_ASSIGN_OR_RETURN(config.rope_scaling, read_llama3_scaling(inner));
  } else if (type == "linear") {
    config.rope_scaling.kind = RopeScaling::Kind::kLinear;
    NMC_ASSIGN_OR_RETURN(config.rope_scaling.factor, positive(inner, "factor"));
  } else if (type != "default") {
    return unsupported("`{}`: expected \"default\", \"linear\" or \"llama3\", got {}",
                       inner.path_of(inner.find("rope_type") != nullptr ? "rope_type" : "type"),
                       describe_json(Json(type)));
  }
  return {};
}

Result<void> read_rope(const JsonFields& fields, ModelConfig& config) {
  NMC_ASSIGN_OR_RETURN(const double theta, fields.number_or("rope_theta", 1.0, 1e12, 10000.0));
  config.rope_theta = static_cast<float>(theta);
  NMC_RETURN_IF_ERROR(read_rope_object(fields, "rope_scaling", config));
  return read_rope_object(fields, "rope_parameters", config);
}

Result<void> read_biases(const JsonFields& fields, const Family& family, ModelConfig& config) {
  config.qk_norm = family.qk_norm;
  NMC_ASSIGN_OR_RETURN(const bool attention_bias, fields.boolean_or("attention_bias", false));
  NMC_ASSIGN_OR_RETURN(const bool mlp_bias, fields.boolean_or("mlp_bias", false));
  if (attention_bias && family.attention_bias == AttentionBias::kNever) {
    return unsupported("`attention_bias`: expected false for {}, got true", family.architecture);
  }
  if (mlp_bias && !family.mlp_bias)
    return unsupported("`mlp_bias`: expected false for {}, got true", family.architecture);
  config.mlp_bias = mlp_bias;
  config.qkv_bias = attention_bias || family.attention_bias == AttentionBias::kQkvAlways;
  config.out_bias = attention_bias && family.attention_bias == AttentionBias::kAsSaid;
  return {};
}

// `layer_types` of newer exports says for each layer whether the window counts there.
Result<std::vector<bool>> read_windowed_layers(const JsonFields& fields, const Family& family, std::size_t layers) {
  std::vector<bool> windowed(layers, true);
  if (const Json* types = fields.find("layer_types")) {
    if (!types->is_array() || types->size() != layers) {
      return invalid_argument("`layer_types`: expected an array of {} strings, one a layer, got {}", layers,
                              describe_json(*types));
    }
    for (std::size_t layer = 0; layer < layers; ++layer) {
      const Json& type = (*types)[layer];
      if (type != "full_attention" && type != "sliding_attention") {
        return unsupported("`layer_types[{}]`: expected \"full_attention\" or \"sliding_attention\", got {}", layer,
                           describe_json(type));
      }
      windowed[layer] = type == "sliding_attention";
    }
  } else if (family.window_switch) {
    NMC_ASSIGN_OR_RETURN(const std::int64_t full,
                         fields.integer_or("max_window_layers", 0, kLayersMax, kAbsentMaxWindowLayers));
    for (std::size_t layer = 0; layer < layers; ++layer) windowed[layer] = layer >= static_cast<std::size_t>(full);
  }
  return windowed;
}

Result<void> read_windows(const JsonFields& fields, const Family& family, ModelConfig& config) {
  if (family.absent_window == 0) {
    const Json* window = fields.find("sliding_window");
    if (window == nullptr) return {};
    return unsupported("`sliding_window`: expected null for {}, got {}", family.architecture, describe_json(*window));
  }
  // Present and null is no window, absent is what the family's class assumes.
  std::size_t window = fields.has("sliding_window") ? 0 : family.absent_window;
  if (fields.find("sliding_window") != nullptr) {
    NMC_ASSIGN_OR_RETURN(window, size_field(fields, "sliding_window", kPositionsMax));
  }
  if (family.window_switch) {
    NMC_ASSIGN_OR_RETURN(const bool used, fields.boolean_or("use_sliding_window", false));
    if (!used) window = 0;
  }
  NMC_ASSIGN_OR_RETURN(const std::vector<bool> windowed, read_windowed_layers(fields, family, config.layers));
  const bool any = std::ranges::find(windowed, true) != windowed.end();
  if (window == 0 || !any) return {};
  for (const bool here : windowed) config.windows.push_back(here ? window : 0);
  return {};
}

// Fields that change the forward pass in ways we don't do, with the only value that leaves it alone.
Result<void> refuse_variants(const JsonFields& fields) {
  NMC_ASSIGN_OR_RETURN(const std::string activation, fields.string_or("hidden_act", "silu"));
  if (activation != "silu") {
    return unsupported("`hidden_act`: expected \"silu\", got {}", describe_json(*fields.find("hidden_act")));
  }
  NMC_ASSIGN_OR_RETURN(const double rotary, fields.number_or("partial_rotary_factor", 0.0, 1.0, 1.0));
  if (rotary != 1.0) return unsupported("`partial_rotary_factor`: expected 1, got {}", rotary);
  if (const Json* value = fields.find("quantization_config")) {
    return unsupported("`quantization_config`: expected null, got {}", describe_json(*value));
  }
  return {};
}

Result<void> read_special_ids(const JsonFields& fields, ModelConfig& config) {
  const auto last = static_cast<std::int64_t>(config.vocab) - 1;
  // Some exports list several start tokens; a prompt begins with the first.
  NMC_ASSIGN_OR_RETURN(const std::vector<kv::TokenId> bos, read_token_ids(fields, "bos_token_id", last));
  if (!bos.empty()) config.bos_id = bos.front();
  NMC_ASSIGN_OR_RETURN(config.eos_ids, read_token_ids(fields, "eos_token_id", last));
  return {};
}

Result<ModelConfig> parse_fields(const Json& json) {
  if (!json.is_object()) return invalid_argument("expected an object, got {}", json_type_name(json));
  const JsonFields fields(json);
  ModelConfig config;
  NMC_ASSIGN_OR_RETURN(const Family* family, find_family(fields));
  config.model_type = family->model_type;
  NMC_RETURN_IF_ERROR(refuse_variants(fields));
  NMC_RETURN_IF_ERROR(read_sizes(fields, *family, config));
  NMC_RETURN_IF_ERROR(read_heads(fields, *family, config));
  NMC_RETURN_IF_ERROR(read_rope(fields, config));
  NMC_RETURN_IF_ERROR(read_biases(fields, *family, config));
  NMC_RETURN_IF_ERROR(read_windows(fields, *family, config));
  NMC_RETURN_IF_ERROR(read_special_ids(fields, config));
  NMC_ASSIGN_OR_RETURN(const double epsilon, fields.number_or("rms_norm_eps", 1e-12, 1.0, 1e-6));
  config.rms_epsilon = static_cast<float>(epsilon);
  NMC_ASSIGN_OR_RETURN(config.tie_embeddings, fields.boolean_or("tie_word_embeddings", false));
  NMC_ASSIGN_OR_RETURN(config.dtype, fields.string_or("torch_dtype", ""));
  NMC_ASSIGN_OR_RETURN(config.dtype, fields.string_or("dtype", config.dtype));
  if (config.parameters() > kParametersMax) {
    return invalid_argument("sizes make {} parameters, expected at most {}", config.parameters(), kParametersMax);
  }
  return config;
}

}  // namespace

std::size_t ModelConfig::parameters() const {
  const std::size_t attention = hidden * (2 * q_size() + 2 * kv_size());
  const std::size_t mlp = 3 * hidden * intermediate;
  const std::size_t tables = vocab * hidden * (tie_embeddings ? 1 : 2);
  const std::size_t biases = (qkv_bias ? q_size() + 2 * kv_size() : 0) + (out_bias ? hidden : 0) +
                             (mlp_bias ? 2 * intermediate + hidden : 0) + (qk_norm ? 2 * head_dim : 0);
  return layers * (attention + mlp + biases + 2 * hidden) + tables + hidden;
}

std::string ModelConfig::digest_text() const {
  // Hexadecimal floats: exact, and the same on every machine.
  std::string text = fmt::format(
      "{}/v1 layers={} hidden={} heads={} kv_heads={} head_dim={} intermediate={} vocab={} rms_epsilon={:a} "
      "rope_theta={:a} tie_embeddings={}",
      model_type, layers, hidden, heads, kv_heads, head_dim, intermediate, vocab, rms_epsilon, rope_theta,
      tie_embeddings);
  if (rope_scaling.kind != RopeScaling::Kind::kNone) {
    text +=
        fmt::format(" rope_scaling={},{:a},{:a},{:a},{:a}", static_cast<int>(rope_scaling.kind), rope_scaling.factor,
                    rope_scaling.low_freq_factor, rope_scaling.high_freq_factor, rope_scaling.original_max_positions);
    for (const float divisor : rope_scaling.divisors) text += fmt::format(",{:a}", divisor);
  }
  text += fmt::format("{}{}{}{}", qkv_bias ? " qkv_bias" : "", out_bias ? " out_bias" : "", mlp_bias ? " mlp_bias" : "",
                      qk_norm ? " qk_norm" : "");
  if (!windows.empty()) text += fmt::format(" windows={}", fmt::join(windows, ","));
  return text;
}

Result<std::vector<kv::TokenId>> read_token_ids(const JsonFields& fields, std::string_view name, std::int64_t last) {
  const Json* value = fields.find(name);
  std::vector<kv::TokenId> ids;
  if (value == nullptr) return ids;
  if (!value->is_array()) {
    NMC_ASSIGN_OR_RETURN(const std::int64_t id, fields.integer(name, 0, last));
    ids.push_back(static_cast<kv::TokenId>(id));
    return ids;
  }
  NMC_ASSIGN_OR_RETURN(const std::vector<std::int64_t> numbers, fields.integers(name));
  for (const std::int64_t number : numbers) {
    if (number < 0 || number > last) {
      return invalid_argument("`{}`: expected ids from 0 to {}, got {}", fields.path_of(name), last, number);
    }
    ids.push_back(static_cast<kv::TokenId>(number));
  }
  return ids;
}

Result<ModelConfig> parse_config(const Json& json, std::string_view path) {
  Result<ModelConfig> config = parse_fields(json);
  if (!config) return Failure(std::move(config).error().with_context(path));
  return config;
}

Result<ModelConfig> read_config(const Path& path) {
  NMC_ASSIGN_OR_RETURN(const std::string text, read_file(path, kConfigBytesMax));
  NMC_ASSIGN_OR_RETURN(const Json json, parse_json(text, path.string()));
  return parse_config(json, path.string());
}

}  // namespace nmc::model
