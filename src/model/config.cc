#include "model/config.h"

#include <array>
#include <nlohmann/json.hpp>

namespace nmc::model {
namespace {

// Upper ends of what a size may claim. Well above every published model, and small enough that products of a few of
// them can't overflow.
constexpr std::int64_t kLayersMax = 1024;
constexpr std::int64_t kWidthMax = 1 << 20;  // hidden, intermediate, heads * head_dim
constexpr std::int64_t kHeadsMax = 4096;
constexpr std::int64_t kHeadDimMax = 1024;
constexpr std::int64_t kVocabMax = 1 << 24;
constexpr std::int64_t kPositionsMax = 1 << 24;
constexpr std::size_t kParametersMax = std::size_t{1} << 42;
constexpr std::int64_t kConfigBytesMax = 16 << 20;

// A family is a model_type of Hugging Face with the architecture that goes with it.
struct Family {
  std::string_view model_type;
  std::string_view architecture;
};
constexpr std::array kFamilies = {Family{"llama", "LlamaForCausalLM"}};

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

Result<void> read_sizes(const JsonFields& fields, ModelConfig& config) {
  NMC_ASSIGN_OR_RETURN(config.layers, size_field(fields, "num_hidden_layers", kLayersMax));
  NMC_ASSIGN_OR_RETURN(config.hidden, size_field(fields, "hidden_size", kWidthMax));
  NMC_ASSIGN_OR_RETURN(config.intermediate, size_field(fields, "intermediate_size", kWidthMax));
  NMC_ASSIGN_OR_RETURN(config.vocab, size_field(fields, "vocab_size", kVocabMax));
  NMC_ASSIGN_OR_RETURN(config.max_positions, size_field_or(fields, "max_position_embeddings", kPositionsMax, 2048));
  return {};
}

Result<void> read_heads(const JsonFields& fields, ModelConfig& config) {
  NMC_ASSIGN_OR_RETURN(config.heads, size_field(fields, "num_attention_heads", kHeadsMax));
  NMC_ASSIGN_OR_RETURN(config.kv_heads, size_field_or(fields, "num_key_value_heads", kHeadsMax, config.heads));
  if (config.heads % config.kv_heads != 0) {
    return invalid_argument("`num_key_value_heads`: expected a divisor of `num_attention_heads` ({}), got {}",
                            config.heads, config.kv_heads);
  }
  if (fields.find("head_dim") == nullptr) {
    if (config.hidden % config.heads != 0) {
      return invalid_argument(
          "`num_attention_heads`: expected a divisor of `hidden_size` ({}), as `head_dim` is absent, got {}",
          config.hidden, config.heads);
    }
    config.head_dim = config.hidden / config.heads;
  } else {
    NMC_ASSIGN_OR_RETURN(config.head_dim, size_field(fields, "head_dim", kHeadDimMax));
  }
  if (config.head_dim % 2 != 0 || config.head_dim > std::size_t{kHeadDimMax}) {
    return invalid_argument("`head_dim`: expected an even number up to {}, got {}", kHeadDimMax, config.head_dim);
  }
  if (config.q_size() > std::size_t{kWidthMax}) {
    return invalid_argument("`num_attention_heads` times `head_dim`: expected at most {}, got {} times {}", kWidthMax,
                            config.heads, config.head_dim);
  }
  return {};
}

// `scaling` is rope_scaling of older exports or rope_parameters of newer ones.
Result<void> check_rope_type(const JsonFields& fields, std::string_view name) {
  const Json* scaling = fields.find(name);
  if (scaling == nullptr) return {};
  if (!scaling->is_object()) {
    return invalid_argument("`{}`: expected an object or null, got {}", name, describe_json(*scaling));
  }
  const JsonFields inner(*scaling, std::string(name));
  for (const std::string_view key : {"rope_type", "type"}) {
    NMC_ASSIGN_OR_RETURN(const std::string type, inner.string_or(key, "default"));
    if (type != "default") {
      return unsupported("`{}`: expected \"default\", got {}", inner.path_of(key), describe_json(*inner.find(key)));
    }
  }
  return {};
}

Result<void> read_rope(const JsonFields& fields, ModelConfig& config) {
  NMC_RETURN_IF_ERROR(check_rope_type(fields, "rope_scaling"));
  NMC_RETURN_IF_ERROR(check_rope_type(fields, "rope_parameters"));
  NMC_ASSIGN_OR_RETURN(double theta, fields.number_or("rope_theta", 1.0, 1e12, 10000.0));
  if (const Json* parameters = fields.find("rope_parameters")) {
    const JsonFields inner(*parameters, "rope_parameters");
    NMC_ASSIGN_OR_RETURN(theta, inner.number_or("rope_theta", 1.0, 1e12, theta));
  }
  config.rope_theta = static_cast<float>(theta);
  return {};
}

// Fields that change the forward pass in ways we don't do, with the only value that leaves it alone.
Result<void> refuse_variants(const JsonFields& fields) {
  NMC_ASSIGN_OR_RETURN(const std::string activation, fields.string_or("hidden_act", "silu"));
  if (activation != "silu") {
    return unsupported("`hidden_act`: expected \"silu\", got {}", describe_json(*fields.find("hidden_act")));
  }
  for (const std::string_view name : {"attention_bias", "mlp_bias"}) {
    NMC_ASSIGN_OR_RETURN(const bool bias, fields.boolean_or(name, false));
    if (bias) return unsupported("`{}`: expected false, got true", name);
  }
  NMC_ASSIGN_OR_RETURN(const double rotary, fields.number_or("partial_rotary_factor", 0.0, 1.0, 1.0));
  if (rotary != 1.0) return unsupported("`partial_rotary_factor`: expected 1, got {}", rotary);
  for (const std::string_view name : {"quantization_config", "sliding_window"}) {
    if (const Json* value = fields.find(name)) {
      return unsupported("`{}`: expected null, got {}", name, describe_json(*value));
    }
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
  NMC_RETURN_IF_ERROR(read_sizes(fields, config));
  NMC_RETURN_IF_ERROR(read_heads(fields, config));
  NMC_RETURN_IF_ERROR(read_rope(fields, config));
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
  return layers * (attention + mlp + 2 * hidden) + tables + hidden;
}

std::string ModelConfig::digest_text() const {
  // Hexadecimal floats: exact, and the same on every machine.
  return fmt::format(
      "{}/v1 layers={} hidden={} heads={} kv_heads={} head_dim={} intermediate={} vocab={} rms_epsilon={:a} "
      "rope_theta={:a} tie_embeddings={}",
      model_type, layers, hidden, heads, kv_heads, head_dim, intermediate, vocab, rms_epsilon, rope_theta,
      tie_embeddings);
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
