#include "sim/kv_shape.h"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace nmc::sim {
namespace {

constexpr std::int64_t kSizeMax = std::int64_t{1} << 20;
constexpr std::uint64_t kConfigBytesMax = 16 << 20;
constexpr std::uint64_t kUsualGroup = 8;  // query heads of one key: Llama 3 70B, Qwen2 72B

Result<std::uint64_t> size(const JsonFields& fields, std::string_view name) {
  NMC_ASSIGN_OR_RETURN(const std::int64_t value, fields.integer(name, 1, kSizeMax));
  return static_cast<std::uint64_t>(value);
}

Result<std::uint64_t> size_or(const JsonFields& fields, std::string_view name, std::uint64_t absent) {
  if (fields.find(name) == nullptr) return absent;
  return size(fields, name);
}

Result<std::uint64_t> head_dim_of(const JsonFields& fields, std::uint64_t heads) {
  if (fields.find("head_dim") != nullptr) return size(fields, "head_dim");
  NMC_ASSIGN_OR_RETURN(const std::uint64_t hidden, size(fields, "hidden_size"));
  if (hidden % heads == 0) return hidden / heads;
  return invalid_argument("`{}`: expected a divisor of `hidden_size` ({}), as `head_dim` is absent, got {}",
                          fields.path_of("num_attention_heads"), hidden, heads);
}

Result<void> read_latent(const JsonFields& fields, KvShape& shape) {
  shape.attention = Attention::kMla;
  NMC_ASSIGN_OR_RETURN(shape.latent_dim, size(fields, "kv_lora_rank"));
  NMC_ASSIGN_OR_RETURN(shape.rope_dim, size(fields, "qk_rope_head_dim"));
  NMC_ASSIGN_OR_RETURN(const std::uint64_t plain, size(fields, "qk_nope_head_dim"));
  NMC_ASSIGN_OR_RETURN(shape.value_dim, size(fields, "v_head_dim"));
  shape.key_dim = plain + shape.rope_dim;
  shape.kv_heads = shape.heads;
  return {};
}

Result<void> read_heads(const JsonFields& fields, KvShape& shape) {
  NMC_ASSIGN_OR_RETURN(shape.kv_heads, size_or(fields, "num_key_value_heads", shape.heads));
  if (shape.heads % shape.kv_heads != 0) {
    return invalid_argument("`{}`: expected a divisor of `num_attention_heads` ({}), got {}",
                            fields.path_of("num_key_value_heads"), shape.heads, shape.kv_heads);
  }
  shape.attention = shape.kv_heads == shape.heads ? Attention::kMha
                    : shape.kv_heads == 1         ? Attention::kMqa
                                                  : Attention::kGqa;
  NMC_ASSIGN_OR_RETURN(shape.key_dim, head_dim_of(fields, shape.heads));
  shape.value_dim = shape.key_dim;
  return {};
}

// Unless a switch says that it isn't used, as Qwen's does.
Result<void> read_window(const JsonFields& fields, KvShape& shape) {
  NMC_ASSIGN_OR_RETURN(const bool used, fields.boolean_or("use_sliding_window", true));
  if (!used) return {};
  NMC_ASSIGN_OR_RETURN(const std::int64_t window, fields.integer_or("sliding_window", 0, kSizeMax * kSizeMax, 0));
  shape.window = static_cast<std::uint64_t>(window);
  return {};
}

Result<void> read_element(const JsonFields& fields, KvShape& shape) {
  NMC_ASSIGN_OR_RETURN(std::string type, fields.string_or("dtype", ""));
  if (type.empty()) {
    NMC_ASSIGN_OR_RETURN(type, fields.string_or("torch_dtype", "bfloat16"));
  }
  shape.element_bytes = type == "float32" ? 4 : 2;  // weights in 8 bits keep their KV in 16
  return {};
}

}  // namespace

const char* attention_name(Attention attention) {
  switch (attention) {
    case Attention::kMha: return "mha";
    case Attention::kGqa: return "gqa";
    case Attention::kMqa: return "mqa";
    case Attention::kMla: return "mla";
  }
  return "";
}

std::optional<Attention> parse_attention(std::string_view name) {
  for (const Attention one : {Attention::kMha, Attention::kGqa, Attention::kMqa, Attention::kMla}) {
    if (name == attention_name(one)) return one;
  }
  return std::nullopt;
}

KvShape with_attention(const KvShape& shape, Attention attention) {
  KvShape other = shape;
  other.attention = attention;
  if (attention == Attention::kMha) other.kv_heads = shape.heads;
  if (attention == Attention::kMqa) other.kv_heads = 1;
  const bool has_groups = shape.attention == Attention::kGqa || (shape.kv_heads > 1 && shape.kv_heads < shape.heads);
  if (attention == Attention::kGqa && !has_groups)
    other.kv_heads = std::max<std::uint64_t>(1, shape.heads / kUsualGroup);
  return other;
}

Result<KvShape> kv_shape_from_json(const Json& config) {
  const JsonFields whole(config);
  const Json* text = whole.find("text_config");  // of a model that sees or hears, too
  const JsonFields fields(text != nullptr ? *text : config, text != nullptr ? "text_config" : "");
  KvShape shape;
  NMC_ASSIGN_OR_RETURN(shape.name, whole.string_or("model_type", ""));
  NMC_ASSIGN_OR_RETURN(shape.layers, size(fields, "num_hidden_layers"));
  NMC_ASSIGN_OR_RETURN(shape.heads, size(fields, "num_attention_heads"));
  NMC_RETURN_IF_ERROR(fields.find("kv_lora_rank") != nullptr ? read_latent(fields, shape) : read_heads(fields, shape));
  NMC_RETURN_IF_ERROR(read_window(fields, shape));
  NMC_RETURN_IF_ERROR(read_element(fields, shape));
  return shape;
}

Result<KvShape> read_kv_shape(const Path& path) {
  std::error_code ignored;
  const Path file = std::filesystem::is_directory(path, ignored) ? path / "config.json" : path;
  NMC_ASSIGN_OR_RETURN(const std::string text, read_file(file, kConfigBytesMax));
  NMC_ASSIGN_OR_RETURN(const Json config, parse_json(text, file.string()));
  if (!config.is_object())
    return invalid_argument("{}: expected an object, got {}", file.string(), json_type_name(config));
  Result<KvShape> shape = kv_shape_from_json(config);
  if (!shape) return Failure(std::move(shape).error().with_context(file.string()));
  return shape;
}

}  // namespace nmc::sim
