#include "model/tokenizer_steps.h"

#include <array>
#include <nlohmann/json.hpp>
#include <vector>

#include "model/unicode.h"

namespace nmc::model {
namespace {

using kv::TokenId;

constexpr std::size_t kStepsMax = 64;
constexpr std::size_t kPrependBytesMax = 64;

Result<std::string> type_of(const Json& step, const std::string& path) {
  if (!step.is_object()) return invalid_argument("`{}`: expected an object, got {}", path, json_type_name(step));
  return JsonFields(step, path).string("type");
}

// The steps of a part that is one step, a Sequence of steps under `list`, or null; each with its path for messages.
struct StepJson {
  const Json* json;
  std::string type;
  std::string path;

  JsonFields fields() const { return JsonFields(*json, path); }
};

Result<std::vector<StepJson>> read_steps(const JsonFields& file, std::string_view name, std::string_view list) {
  std::vector<StepJson> steps;
  const Json* json = file.find(name);
  if (json == nullptr) return steps;
  NMC_ASSIGN_OR_RETURN(const std::string type, type_of(*json, std::string(name)));
  if (type != "Sequence") {
    steps.push_back({json, type, std::string(name)});
    return steps;
  }
  const JsonFields sequence(*json, std::string(name));
  const Json* inner = sequence.find(list);
  if (inner == nullptr || !inner->is_array() || inner->size() > kStepsMax) {
    return invalid_argument("`{}`: expected an array of at most {} steps", sequence.path_of(list), kStepsMax);
  }
  for (std::size_t i = 0; i < inner->size(); ++i) {
    std::string path = fmt::format("{}[{}]", sequence.path_of(list), i);
    NMC_ASSIGN_OR_RETURN(std::string inner_type, type_of((*inner)[i], path));
    steps.push_back({&(*inner)[i], std::move(inner_type), std::move(path)});
  }
  return steps;
}

Failure unsupported_step(const StepJson& step, std::string_view expected) {
  return unsupported("`{}`: expected {}, got {}", step.path, expected, printable(step.type));
}

// A text of one character.
Result<char32_t> read_character(const JsonFields& step, std::string_view name) {
  const Result<std::string> text = step.string(name);
  if (!text) return Failure(text.error());
  if (text->empty() || utf8_char_at(*text, 0).bytes != text->size()) {
    return invalid_argument("`{}`: expected one character, got {}", step.path_of(name), printable(*text));
  }
  return utf8_char_at(*text, 0).code;
}

// {"String": "..."} or {"Regex": "..."}.
struct Pattern {
  bool is_regex = false;
  std::string text;
  std::string path;
};

Result<Pattern> read_pattern(const JsonFields& step) {
  NMC_ASSIGN_OR_RETURN(const Json* json, json_part(step, "pattern"));
  const JsonFields fields(*json, step.path_of("pattern"));
  Pattern pattern;
  pattern.is_regex = fields.find("Regex") != nullptr;
  const char* kind = pattern.is_regex ? "Regex" : "String";
  pattern.path = fields.path_of(kind);
  NMC_ASSIGN_OR_RETURN(pattern.text, fields.string(kind));
  if (pattern.text.empty()) return unsupported("`{}`: expected a pattern that isn't empty", pattern.path);
  return pattern;
}

Result<std::shared_ptr<const Regex>> compile(const Pattern& pattern) {
  if (!pattern.is_regex) return std::make_shared<const Regex>(Regex::literal(pattern.text));
  Result<Regex> regex = Regex::compile(pattern.text);
  if (!regex) return Failure(std::move(regex).error().with_context(fmt::format("`{}`", pattern.path)));
  return std::make_shared<const Regex>(std::move(*regex));
}

// Texts may get longer by a step, and by a row of them without bound: how many times they may, all in all.
class Growth {
 public:
  Result<void> add(const ReplaceStep& step, const std::string& path) {
    times_ *= std::max<std::size_t>(step.content.size(), 1);
    if (times_ > kTimesMax) return unsupported("`{}`: texts could get {} times as long by then", path, times_);
    return {};
  }

 private:
  static constexpr std::size_t kTimesMax = 64;
  std::size_t times_ = 1;
};

Result<ReplaceStep> read_replace(const JsonFields& fields) {
  ReplaceStep step;
  NMC_ASSIGN_OR_RETURN(const Pattern pattern, read_pattern(fields));
  NMC_ASSIGN_OR_RETURN(step.regex, compile(pattern));
  NMC_ASSIGN_OR_RETURN(step.content, fields.string("content"));
  return step;
}

// ---- Normalizer
// -------------------------------------------------------------------------------------------------------

Result<Normalizer::Step> read_normalizer_step(const StepJson& step, Growth& growth) {
  const JsonFields fields = step.fields();
  if (step.type == "NFC") return UnicodeForm::kNfc;
  if (step.type == "NFD") return UnicodeForm::kNfd;
  if (step.type == "NFKC") return UnicodeForm::kNfkc;
  if (step.type == "NFKD") return UnicodeForm::kNfkd;
  if (step.type == "Lowercase") return LowercaseStep();
  if (step.type == "Replace") {
    NMC_ASSIGN_OR_RETURN(ReplaceStep replace, read_replace(fields));
    NMC_RETURN_IF_ERROR(growth.add(replace, step.path));
    return replace;
  }
  if (step.type == "Prepend") {
    PrependStep prepend;
    NMC_ASSIGN_OR_RETURN(prepend.text, fields.string("prepend"));
    if (prepend.text.size() <= kPrependBytesMax) return prepend;
    return unsupported("`{}`: expected at most {} bytes", fields.path_of("prepend"), kPrependBytesMax);
  }
  if (step.type == "Strip") {
    StripStep strip;
    NMC_ASSIGN_OR_RETURN(strip.left, fields.boolean("strip_left"));
    NMC_ASSIGN_OR_RETURN(strip.right, fields.boolean("strip_right"));
    return strip;
  }
  return unsupported_step(step, "NFC, NFD, NFKC, NFKD, Lowercase, Strip, Prepend or Replace");
}

// ---- Pre-tokenizer
// ----------------------------------------------------------------------------------------------------

Result<SplitBehavior> read_behavior(const JsonFields& fields) {
  static constexpr std::array<std::pair<std::string_view, SplitBehavior>, 5> kBehaviors = {
      {{"Removed", SplitBehavior::kRemoved},
       {"Isolated", SplitBehavior::kIsolated},
       {"MergedWithPrevious", SplitBehavior::kMergedWithPrevious},
       {"MergedWithNext", SplitBehavior::kMergedWithNext},
       {"Contiguous", SplitBehavior::kContiguous}}};
  NMC_ASSIGN_OR_RETURN(const std::string name, fields.string("behavior"));
  for (const auto& [known, behavior] : kBehaviors) {
    if (known == name) return behavior;
  }
  return invalid_argument("`{}`: expected Removed, Isolated, MergedWithPrevious, MergedWithNext or Contiguous, got {}",
                          fields.path_of("behavior"), printable(name));
}

Result<SplitStep> read_split(const JsonFields& fields) {
  NMC_ASSIGN_OR_RETURN(const Pattern pattern, read_pattern(fields));
  SplitStep step;
  NMC_ASSIGN_OR_RETURN(step.behavior, read_behavior(fields));
  NMC_ASSIGN_OR_RETURN(step.invert, fields.boolean_or("invert", false));
  if (pattern.is_regex) step.piece_end = piece_end_of(pattern.text);
  if (step.piece_end == nullptr) {
    NMC_ASSIGN_OR_RETURN(step.regex, compile(pattern));
  }
  return step;
}

Result<MetaspaceStep::Prepend> read_prepend_scheme(const JsonFields& fields) {
  NMC_ASSIGN_OR_RETURN(const std::string scheme, fields.string_or("prepend_scheme", "always"));
  NMC_ASSIGN_OR_RETURN(const bool add_prefix_space, fields.boolean_or("add_prefix_space", true));
  if (scheme != "always" && scheme != "first" && scheme != "never") {
    return invalid_argument("`{}`: expected always, first or never, got {}", fields.path_of("prepend_scheme"),
                            printable(scheme));
  }
  if (!add_prefix_space || scheme == "never") return MetaspaceStep::Prepend::kNever;
  return scheme == "first" ? MetaspaceStep::Prepend::kFirst : MetaspaceStep::Prepend::kAlways;
}

Result<MetaspaceStep> read_metaspace(const JsonFields& fields) {
  MetaspaceStep step;
  NMC_ASSIGN_OR_RETURN(const char32_t replacement, read_character(fields, "replacement"));
  append_utf8(step.replacement, replacement);
  NMC_ASSIGN_OR_RETURN(step.prepend, read_prepend_scheme(fields));
  NMC_ASSIGN_OR_RETURN(step.split, fields.boolean_or("split", true));
  return step;
}

Result<ByteLevelStep> read_byte_level(const JsonFields& fields) {
  ByteLevelStep step;
  NMC_ASSIGN_OR_RETURN(step.add_prefix_space, fields.boolean_or("add_prefix_space", true));
  NMC_ASSIGN_OR_RETURN(step.use_pattern, fields.boolean_or("use_regex", true));
  return step;
}

Result<PreTokenizer::Step> read_pre_tokenizer_step(const StepJson& step, bool is_last) {
  const JsonFields fields = step.fields();
  if (step.type == "Split") return read_split(fields);
  if (step.type == "Metaspace") return read_metaspace(fields);
  if (step.type == "Digits") {
    DigitsStep digits;
    NMC_ASSIGN_OR_RETURN(digits.individual, fields.boolean_or("individual_digits", false));
    return digits;
  }
  if (step.type != "ByteLevel") return unsupported_step(step, "Split, Digits, Metaspace or ByteLevel");
  if (!is_last) return unsupported("`{}`: expected ByteLevel as the last step", step.path);
  return read_byte_level(fields);
}

// ---- Decoder
// ----------------------------------------------------------------------------------------------------------

Result<StripCharStep> read_strip(const JsonFields& fields) {
  StripCharStep step;
  NMC_ASSIGN_OR_RETURN(step.character, read_character(fields, "content"));
  NMC_ASSIGN_OR_RETURN(const std::int64_t start, fields.integer("start", 0, UINT32_MAX));
  NMC_ASSIGN_OR_RETURN(const std::int64_t stop, fields.integer("stop", 0, UINT32_MAX));
  step.start = static_cast<std::uint32_t>(start);
  step.stop = static_cast<std::uint32_t>(stop);
  return step;
}

// Steps on each token, then bytes, then one text of all, then what that loses at its start: other orders would mean
// other things, and no file has them.
struct DecoderReader {
  TokenDecoder decoder;
  Growth growth;
  bool is_fused = false;

  Result<void> read(const StepJson& step) {
    const JsonFields fields = step.fields();
    if (step.type == "Fuse") {
      is_fused = true;
      return {};
    }
    if (step.type == "Strip" && is_fused) return read_strip_of_all(step);
    const bool is_token_step = step.type == "Replace" || step.type == "Strip" || step.type == "Metaspace";
    if (!is_token_step && step.type != "ByteFallback") {
      return unsupported_step(step, "ByteLevel alone, Replace, Strip, Metaspace, ByteFallback or Fuse");
    }
    if (is_fused || decoder.byte_fallback) {
      return unsupported("`{}`: expected {} before ByteFallback and Fuse", step.path, step.type);
    }
    if (step.type == "ByteFallback") {
      decoder.byte_fallback = true;
    } else if (step.type == "Replace") {
      NMC_ASSIGN_OR_RETURN(ReplaceStep replace, read_replace(fields));
      NMC_RETURN_IF_ERROR(growth.add(replace, step.path));
      decoder.steps.emplace_back(std::move(replace));
    } else if (step.type == "Strip") {
      NMC_ASSIGN_OR_RETURN(StripCharStep strip, read_strip(fields));
      decoder.steps.emplace_back(strip);
    } else {
      NMC_RETURN_IF_ERROR(read_metaspace_decode(fields));
    }
    return {};
  }

  Result<void> read_metaspace_decode(const JsonFields& fields) {
    MetaspaceDecodeStep step;
    NMC_ASSIGN_OR_RETURN(step.replacement, read_character(fields, "replacement"));
    NMC_ASSIGN_OR_RETURN(const MetaspaceStep::Prepend prepend, read_prepend_scheme(fields));
    step.drops_first = prepend != MetaspaceStep::Prepend::kNever;
    decoder.steps.emplace_back(step);
    return {};
  }

  Result<void> read_strip_of_all(const StepJson& step) {
    NMC_ASSIGN_OR_RETURN(const StripCharStep strip, read_strip(step.fields()));
    if (strip.stop != 0 || decoder.strip_max != 0) {
      return unsupported("`{}`: expected one Strip after Fuse, with `stop` 0", step.path);
    }
    decoder.strip = strip.character;
    decoder.strip_max = strip.start;
    return {};
  }
};

// ---- Post-processor
// ---------------------------------------------------------------------------------------------------

// TemplateProcessing may put one token in front of the text.
Result<std::optional<TokenId>> read_template(const StepJson& step, std::span<const std::string> texts) {
  const JsonFields fields = step.fields();
  const Json* single = fields.find("single");
  const auto is_text = [](const Json& piece) {
    const Json* sequence = JsonFields(piece).find("Sequence");
    return sequence != nullptr && JsonFields(*sequence).string_or("id", "") == std::string("A");
  };
  if (single != nullptr && single->is_array() && single->size() == 1 && is_text(single->front())) {
    return std::optional<TokenId>();
  }
  const bool has_start = single != nullptr && single->is_array() && single->size() == 2 && (*single)[0].is_object() &&
                         (*single)[0].contains("SpecialToken") && is_text((*single)[1]);
  if (!has_start) {
    return unsupported("`{}`: expected one special token or none, then sequence A, got {}", fields.path_of("single"),
                       single == nullptr ? "nothing" : describe_json(*single, 120));
  }
  const JsonFields start((*single)[0]["SpecialToken"], fields.path_of("single[0].SpecialToken"));
  NMC_ASSIGN_OR_RETURN(const std::string name, start.string("id"));
  NMC_ASSIGN_OR_RETURN(const Json* tokens, json_part(fields, "special_tokens"));
  const JsonFields special(*tokens, fields.path_of("special_tokens"));
  NMC_ASSIGN_OR_RETURN(const Json* token, json_part(special, name));
  const JsonFields token_fields(*token, special.path_of(name));
  NMC_ASSIGN_OR_RETURN(const std::vector<std::int64_t> ids, token_fields.integers("ids"));
  if (ids.size() != 1 || ids[0] < 0 || static_cast<std::uint64_t>(ids[0]) >= texts.size() ||
      texts[static_cast<std::size_t>(ids[0])].empty()) {
    return corrupt("`{}`: expected the id of one token of the vocabulary", token_fields.path_of("ids"));
  }
  return std::optional(static_cast<TokenId>(ids[0]));
}

}  // namespace

std::string printable(const std::string& text) { return describe_json(Json(text), 80); }

Result<const Json*> json_part(const JsonFields& fields, std::string_view name) {
  const Json* value = fields.find(name);
  if (value == nullptr) return invalid_argument("`{}`: missing", fields.path_of(name));
  if (!value->is_object()) {
    return invalid_argument("`{}`: expected an object, got {}", fields.path_of(name), json_type_name(*value));
  }
  return value;
}

Result<SplitStep> make_split(std::string_view pattern, SplitBehavior behavior, bool invert) {
  SplitStep step;
  step.behavior = behavior;
  step.invert = invert;
  step.piece_end = piece_end_of(pattern);
  if (step.piece_end != nullptr) return step;
  NMC_ASSIGN_OR_RETURN(Regex regex, Regex::compile(pattern));
  step.regex = std::make_shared<const Regex>(std::move(regex));
  return step;
}

Result<Normalizer> read_normalizer(const JsonFields& file) {
  NMC_ASSIGN_OR_RETURN(const std::vector<StepJson> steps, read_steps(file, "normalizer", "normalizers"));
  std::vector<Normalizer::Step> made;
  Growth growth;
  for (const StepJson& step : steps) {
    NMC_ASSIGN_OR_RETURN(Normalizer::Step one, read_normalizer_step(step, growth));
    made.push_back(std::move(one));
  }
  return Normalizer(std::move(made));
}

Result<PreTokenizer> read_pre_tokenizer(const JsonFields& file) {
  NMC_ASSIGN_OR_RETURN(const std::vector<StepJson> steps, read_steps(file, "pre_tokenizer", "pretokenizers"));
  std::vector<PreTokenizer::Step> made;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    NMC_ASSIGN_OR_RETURN(PreTokenizer::Step one, read_pre_tokenizer_step(steps[i], i + 1 == steps.size()));
    made.push_back(std::move(one));
  }
  return PreTokenizer(std::move(made));
}

bool ends_in_bytes(const PreTokenizer& pre_tokenizer) {
  return !pre_tokenizer.steps().empty() && std::holds_alternative<ByteLevelStep>(pre_tokenizer.steps().back());
}

Result<TokenDecoder> read_decoder(const JsonFields& file) {
  NMC_ASSIGN_OR_RETURN(const std::vector<StepJson> steps, read_steps(file, "decoder", "decoders"));
  // Without one the package puts a space between any two tokens.
  if (steps.empty()) return unsupported("`decoder`: expected ByteLevel or steps such as ByteFallback, got none");
  DecoderReader reader;
  if (steps.size() == 1 && steps.front().type == "ByteLevel") {
    reader.decoder.byte_level = true;
    return reader.decoder;
  }
  for (const StepJson& step : steps) NMC_RETURN_IF_ERROR(reader.read(step));
  return reader.decoder;
}

// ByteLevel only trims offsets, which nobody asks us for.
Result<std::optional<TokenId>> read_start_token(const JsonFields& file, std::span<const std::string> texts) {
  NMC_ASSIGN_OR_RETURN(const std::vector<StepJson> steps, read_steps(file, "post_processor", "processors"));
  std::optional<TokenId> start;
  for (const StepJson& step : steps) {
    if (step.type == "ByteLevel") continue;
    if (step.type != "TemplateProcessing") return unsupported_step(step, "ByteLevel or TemplateProcessing");
    NMC_ASSIGN_OR_RETURN(const std::optional<TokenId> found, read_template(step, texts));
    if (found && start) return unsupported("`{}`: expected one start token, got a second one", step.path);
    if (found) start = found;
  }
  return start;
}

}  // namespace nmc::model
