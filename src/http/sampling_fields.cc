#include "http/sampling_fields.h"

#include <charconv>
#include <limits>
#include <nlohmann/json.hpp>

#include "http/try.h"

namespace nmc::http {
namespace {

using engine::TokenId;
constexpr std::int64_t kIdMax = std::numeric_limits<TokenId>::max();

class SamplingParser {
 public:
  SamplingParser(const JsonFields& fields, Endpoint endpoint, const model::GenerationDefaults& defaults)
      : fields_(fields), endpoint_(endpoint), defaults_(defaults) {}

  ApiResult<SamplingFields> parse(std::optional<std::size_t> max_tokens) {
    NMC_TRY(parse_cuts());
    NMC_TRY(parse_penalties());
    NMC_TRY(parse_logit_bias());
    NMC_TRY(parse_allowed_ids());
    NMC_TRY(parse_bad_words());
    NMC_TRY(parse_endings(max_tokens));
    NMC_TRY(parse_logprobs());
    std::int64_t n = 1;
    NMC_TRY(take(fields_.integer_or("n", 1, kChoicesMax, 1), "n", n));
    sampling_.n = static_cast<std::size_t>(n);
    if (fields_.find("seed") != nullptr) {
      using Limits = std::numeric_limits<std::int64_t>;
      NMC_TRY(take(fields_.integer("seed", Limits::min(), Limits::max()), "seed", sampling_.seed.emplace()));
    }
    return std::move(sampling_);
  }

 private:
  ApiResult<void> number(std::string_view name, double low, double high, double absent, float& out) {
    double value = 0;
    NMC_TRY(take(fields_.number_or(name, low, high, absent), name, value));
    out = static_cast<float>(value);
    if (value > 0 && out == 0) out = std::numeric_limits<float>::min();  // 1e-50 isn't 0, which means something else
    return {};
  }
  static double or_else(const std::optional<float>& value, double otherwise) { return value ? *value : otherwise; }

  ApiResult<void> parse_cuts() {
    engine::SamplingParams& params = sampling_.params;
    NMC_TRY(number("temperature", 0, 2, or_else(defaults_.temperature, 1), params.temperature));
    NMC_TRY(number("top_p", 0, 1, or_else(defaults_.top_p, 1), params.top_p));
    if (!(params.top_p > 0)) return bad_field("top_p", "expected a number above 0 and at most 1, got 0");
    std::int64_t top_k = 0;
    NMC_TRY(
        take(fields_.integer_or("top_k", -1, std::numeric_limits<std::uint32_t>::max(), defaults_.top_k.value_or(0)),
             "top_k", top_k));
    params.top_k = top_k < 0 ? 0 : static_cast<std::uint32_t>(top_k);
    return number("min_p", 0, 1, or_else(defaults_.min_p, 0), params.min_p);
  }

  ApiResult<void> parse_penalties() {
    engine::SamplingParams& params = sampling_.params;
    NMC_TRY(number("presence_penalty", -2, 2, 0, params.presence_penalty));
    NMC_TRY(number("frequency_penalty", -2, 2, 0, params.frequency_penalty));
    NMC_TRY(number("repetition_penalty", 0, 2, or_else(defaults_.repetition_penalty, 1), params.repetition_penalty));
    if (!(params.repetition_penalty > 0)) {
      return bad_field("repetition_penalty", "expected a number above 0 and at most 2, got 0");
    }
    return {};
  }

  // {"50256": -100}: ids are the members' names.
  ApiResult<void> parse_logit_bias() {
    const Json* biases = fields_.find("logit_bias");
    if (biases == nullptr) return {};
    if (!biases->is_object()) {
      return bad_field("logit_bias",
                       fmt::format("expected an object of token ids and numbers, got {}", json_type_name(*biases)));
    }
    if (biases->size() > kLogitBiasesMax) {
      return bad_field("logit_bias", fmt::format("expected at most {} ids, got {}", kLogitBiasesMax, biases->size()));
    }
    for (const auto& [name, value] : biases->items()) {
      engine::LogitBias bias;
      const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), bias.id);
      if (error != std::errc() || end != name.data() + name.size()) {
        return bad_field("logit_bias", fmt::format("expected token ids for names, got {}", describe_json(Json(name))));
      }
      if (!value.is_number() || !(value.get<double>() >= -100 && value.get<double>() <= 100)) {
        return bad_field("logit_bias", fmt::format("expected a number from -100 to 100 for {}, got {}", bias.id,
                                                   describe_json(value)));
      }
      bias.bias = value.get<float>();
      sampling_.params.logit_bias.push_back(bias);
    }
    return {};
  }

  ApiResult<void> parse_endings(std::optional<std::size_t> max_tokens) {
    NMC_TRY(take(fields_.boolean_or("ignore_eos", false), "ignore_eos", sampling_.ignore_eos));
    std::int64_t min_tokens = 0;
    NMC_TRY(take(fields_.integer_or("min_tokens", 0, std::numeric_limits<std::int64_t>::max(), 0), "min_tokens",
                 min_tokens));
    sampling_.min_tokens = static_cast<std::size_t>(min_tokens);
    if (max_tokens && sampling_.min_tokens > *max_tokens) {
      return bad_field("min_tokens",
                       fmt::format("expected at most max_tokens ({}), got {}", *max_tokens, sampling_.min_tokens));
    }
    return parse_ids("stop_token_ids", kStopIdsMax, sampling_.stop_ids);
  }

  ApiResult<void> parse_ids(std::string_view name, std::size_t count_max, std::vector<TokenId>& out) {
    if (fields_.find(name) == nullptr) return {};
    std::vector<std::int64_t> ids;
    NMC_TRY(take(fields_.integers(name), name, ids));
    if (ids.size() > count_max) {
      return bad_field(name, fmt::format("expected at most {} ids, got {}", count_max, ids.size()));
    }
    for (const std::int64_t id : ids) {
      if (id < 0 || id > kIdMax) return bad_field(name, fmt::format("expected token ids, got {}", id));
      out.push_back(static_cast<TokenId>(id));
    }
    return {};
  }

  ApiResult<void> parse_allowed_ids() {
    NMC_TRY(parse_ids("allowed_token_ids", kAllowedIdsMax, sampling_.params.allowed_ids));
    if (fields_.find("allowed_token_ids") == nullptr || !sampling_.params.allowed_ids.empty()) return {};
    return bad_field("allowed_token_ids", "expected at least one id, got an empty array");
  }

  ApiResult<void> parse_bad_words() {
    const Json* words = fields_.find("bad_words");
    if (words == nullptr) return {};
    if (!words->is_array()) {
      return bad_field("bad_words", fmt::format("expected an array of strings, got {}", json_type_name(*words)));
    }
    if (words->size() > kBadWordsMax) {
      return bad_field("bad_words", fmt::format("expected at most {} strings, got {}", kBadWordsMax, words->size()));
    }
    for (const Json& word : *words) {
      if (!word.is_string()) {
        return bad_field("bad_words", fmt::format("expected strings, got one with {}", json_type_name(word)));
      }
      const auto& text = word.get_ref<const std::string&>();
      if (text.empty() || text.size() > kBadWordBytesMax) {
        return bad_field("bad_words", fmt::format("expected strings of 1 to {} bytes, got one of {}", kBadWordBytesMax,
                                                  text.size()));
      }
      sampling_.bad_words.push_back(text);
    }
    return {};
  }

  // A chat asks with a boolean and says how many apart; a plain completion asks with the number.
  ApiResult<void> parse_logprobs() {
    std::int64_t count = 0;
    if (fields_.find("prompt_logprobs") != nullptr) {
      NMC_TRY(take(fields_.integer("prompt_logprobs", 0, kTopLogprobsMax), "prompt_logprobs", count));
      sampling_.prompt_logprobs = static_cast<std::uint32_t>(std::exchange(count, 0));
    }
    if (endpoint_ == Endpoint::kCompletions) {
      if (fields_.find("logprobs") == nullptr) return {};
      NMC_TRY(take(fields_.integer("logprobs", 0, kTopLogprobsMax), "logprobs", count));
      sampling_.logprobs = static_cast<std::uint32_t>(count);
      return {};
    }
    bool wanted = false;
    NMC_TRY(take(fields_.boolean_or("logprobs", false), "logprobs", wanted));
    NMC_TRY(take(fields_.integer_or("top_logprobs", 0, kTopLogprobsMax, 0), "top_logprobs", count));
    if (count > 0 && !wanted) return bad_field("top_logprobs", "only allowed when `logprobs` is true");
    if (wanted) sampling_.logprobs = static_cast<std::uint32_t>(count);
    return {};
  }

  const JsonFields& fields_;
  const Endpoint endpoint_;
  const model::GenerationDefaults& defaults_;
  SamplingFields sampling_;
};

}  // namespace

ApiResult<SamplingFields> parse_sampling_fields(const JsonFields& fields, Endpoint endpoint,
                                                std::optional<std::size_t> max_tokens,
                                                const model::GenerationDefaults& defaults) {
  return SamplingParser(fields, endpoint, defaults).parse(max_tokens);
}

}  // namespace nmc::http
