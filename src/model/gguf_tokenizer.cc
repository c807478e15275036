#include "model/gguf_tokenizer.h"

#include <utility>

#include "model/config.h"
#include "model/tokenizer_arrays.h"

namespace nmc::model {
namespace {

constexpr std::string_view kPrefix = "tokenizer.ggml.";

class Reader {
 public:
  explicit Reader(const GgufHeader& header) : fields_(header.metadata) {}

  Result<std::unique_ptr<Tokenizer>> read() {
    NMC_ASSIGN_OR_RETURN(const std::string kind, fields_.string(key("model")));
    if (kind != "gpt2" && kind != "llama") {
      return unsupported("`{}`: expected \"gpt2\" or \"llama\", got {}", key("model"), describe_json(Json(kind)));
    }
    TokenizerArrays arrays;
    NMC_ASSIGN_OR_RETURN(arrays.tokens, strings("tokens"));
    if (arrays.tokens.empty()) return invalid_argument("`{}`: expected at least one token, found none", key("tokens"));
    NMC_ASSIGN_OR_RETURN(arrays.types, types());
    const auto last = static_cast<std::int64_t>(arrays.tokens.size()) - 1;
    NMC_ASSIGN_OR_RETURN(arrays.bos_id, id("bos_token_id", last));
    NMC_ASSIGN_OR_RETURN(arrays.eos_id, id("eos_token_id", last));
    if (fields_.find(key("add_bos_token")) != nullptr) {
      NMC_ASSIGN_OR_RETURN(arrays.add_bos, fields_.boolean(key("add_bos_token")));
    }
    NMC_ASSIGN_OR_RETURN(arrays.add_space_prefix, fields_.boolean_or(key("add_space_prefix"), kind == "llama"));
    if (kind == "llama") {
      NMC_ASSIGN_OR_RETURN(arrays.scores, scores());
      return make_spm_tokenizer(std::move(arrays));
    }
    NMC_ASSIGN_OR_RETURN(arrays.merges, strings("merges"));
    NMC_ASSIGN_OR_RETURN(arrays.pre_tokenizer, fields_.string(key("pre")));
    return make_bpe_tokenizer(std::move(arrays));
  }

 private:
  static std::string key(std::string_view name) { return fmt::format("{}{}", kPrefix, name); }

  Result<const Json*> array(std::string_view name) const {
    const Json* value = fields_.find(key(name));
    if (value == nullptr || !value->is_array()) {
      return invalid_argument("`{}`: expected an array, {}", key(name),
                              value == nullptr ? "it is missing" : "it is none");
    }
    return value;
  }

  Result<std::vector<std::string>> strings(std::string_view name) const {
    NMC_ASSIGN_OR_RETURN(const Json* values, array(name));
    std::vector<std::string> result;
    result.reserve(values->size());
    for (const Json& value : *values) {
      if (!value.is_string()) {
        return invalid_argument("`{}[{}]`: expected a string, got {}", key(name), result.size(), json_type_name(value));
      }
      result.push_back(value.get<std::string>());
    }
    return result;
  }

  // Absent: all tokens are normal ones.
  Result<std::vector<std::int32_t>> types() const {
    std::vector<std::int32_t> result;
    if (fields_.find(key("token_type")) == nullptr) return result;
    NMC_ASSIGN_OR_RETURN(const std::vector<std::int64_t> values, fields_.integers(key("token_type")));
    for (const std::int64_t value : values) {
      if (!std::in_range<std::int32_t>(value)) {
        return invalid_argument("`{}[{}]`: expected a small number, got {}", key("token_type"), result.size(), value);
      }
      result.push_back(static_cast<std::int32_t>(value));
    }
    return result;
  }

  Result<std::vector<float>> scores() const {
    NMC_ASSIGN_OR_RETURN(const Json* values, array("scores"));
    std::vector<float> result;
    for (const Json& value : *values) {
      if (!value.is_number()) {
        return invalid_argument("`{}[{}]`: expected a number, got {}", key("scores"), result.size(),
                                json_type_name(value));
      }
      result.push_back(value.get<float>());
    }
    return result;
  }

  Result<std::optional<TokenId>> id(std::string_view name, std::int64_t last) const {
    NMC_ASSIGN_OR_RETURN(const std::vector<TokenId> ids, read_token_ids(fields_, key(name), last));
    return ids.empty() ? std::optional<TokenId>() : ids.front();
  }

  const JsonFields fields_;
};

}  // namespace

Result<std::unique_ptr<Tokenizer>> gguf_tokenizer(const GgufHeader& header, std::string_view path) {
  Result<std::unique_ptr<Tokenizer>> tokenizer = Reader(header).read();
  if (!tokenizer) return Failure(std::move(tokenizer).error().with_context(path));
  return tokenizer;
}

}  // namespace nmc::model
