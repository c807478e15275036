#include "model/tokenizer_file.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "model/unicode.h"

namespace nmc::model {
namespace {

using kv::TokenId;

constexpr std::size_t kAlphabetEnd = 0x144;

constexpr bool is_printable(unsigned byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

// Printable bytes stand for themselves, the others in order for U+0100 and on.
constexpr std::array<char32_t, 256> kCharacterOfByte = [] {
  std::array<char32_t, 256> table{};
  char32_t next = 0x100;
  for (unsigned byte = 0; byte < 256; ++byte) table[byte] = is_printable(byte) ? byte : next++;
  return table;
}();

constexpr std::array<std::int16_t, kAlphabetEnd> kByteOfCharacter = [] {
  std::array<std::int16_t, kAlphabetEnd> table{};
  table.fill(-1);
  for (unsigned byte = 0; byte < 256; ++byte) table[kCharacterOfByte[byte]] = static_cast<std::int16_t>(byte);
  return table;
}();

std::string printable(const std::string& text) { return describe_json(Json(text), 80); }

// Member `name` as an object with the fields of one of the file's parts; an error when it is something else.
Result<const Json*> part(const JsonFields& file, std::string_view name) {
  const Json* value = file.find(name);
  if (value == nullptr) return invalid_argument("`{}`: missing", file.path_of(name));
  if (!value->is_object()) {
    return invalid_argument("`{}`: expected an object, got {}", file.path_of(name), json_type_name(*value));
  }
  return value;
}

Result<std::string> type_of(const Json& step, const std::string& path) {
  if (!step.is_object()) return invalid_argument("`{}`: expected an object, got {}", path, json_type_name(step));
  return JsonFields(step, path).string("type");
}

// ---- Vocabulary
// -------------------------------------------------------------------------------------------------------

// Ids must be dense enough that a table by id is in proportion to the file.
Result<void> check_id_range(std::size_t tokens, std::uint64_t highest) {
  const std::uint64_t limit = 4 * static_cast<std::uint64_t>(tokens) + 4096;
  if (highest >= limit) {
    return corrupt("id {} is far beyond the number of tokens ({}), expected ids below {}", highest, tokens, limit);
  }
  return {};
}

Result<void> place_token(TokenizerFile& file, const std::string& text, TokenId id) {
  if (id >= file.texts.size()) file.texts.resize(id + std::size_t{1});
  if (!file.texts[id].empty()) {
    return corrupt("id {} stands for two tokens, {} and {}", id, printable(file.texts[id]), printable(text));
  }
  file.texts[id] = text;
  file.ids.emplace(text, id);
  return {};
}

Result<void> read_vocabulary(const JsonFields& model, TokenizerFile& file) {
  NMC_ASSIGN_OR_RETURN(const Json* vocab, part(model, "vocab"));
  if (vocab->empty()) return invalid_argument("`model.vocab`: expected at least one token");
  for (const auto& [text, id] : vocab->items()) {
    if (!id.is_number_unsigned()) {
      return invalid_argument("`model.vocab`: expected an id for {}, got {}", printable(text), describe_json(id));
    }
    if (text.empty()) return invalid_argument("`model.vocab`: expected no empty token");
    NMC_RETURN_IF_ERROR(check_id_range(vocab->size(), id.get<std::uint64_t>()));
    NMC_RETURN_IF_ERROR(place_token(file, text, static_cast<TokenId>(id.get<std::uint64_t>())));
  }
  return {};
}

// ---- Merges
// -----------------------------------------------------------------------------------------------------------

struct MergePair {
  std::string left;
  std::string right;
};

// "a b" or ["a", "b"].
Result<MergePair> read_merge(const Json& merge) {
  if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
    return MergePair{merge[0].get<std::string>(), merge[1].get<std::string>()};
  }
  if (merge.is_string()) {
    const std::string& text = merge.get_ref<const std::string&>();
    const std::size_t space = text.find(' ');
    if (space != text.npos && text.find(' ', space + 1) == text.npos) {
      return MergePair{text.substr(0, space), text.substr(space + 1)};
    }
  }
  return invalid_argument("expected \"a b\" or [\"a\", \"b\"], got {}", describe_json(merge));
}

Result<TokenId> merge_id(const TokenizerFile& file, const std::string& text) {
  const auto it = file.ids.find(text);
#ifndef NMC_PLANT_TOKENIZER  // a deliberate mistake, to see that fuzzing finds it
  if (it == file.ids.end()) return corrupt("{} isn't in the vocabulary", printable(text));
#endif
  return it->second;
}

Result<MergeRule> resolve_merge(const TokenizerFile& file, const Json& merge) {
  NMC_ASSIGN_OR_RETURN(const MergePair pair, read_merge(merge));
  MergeRule rule;
  NMC_ASSIGN_OR_RETURN(rule.left, merge_id(file, pair.left));
  NMC_ASSIGN_OR_RETURN(rule.right, merge_id(file, pair.right));
  NMC_ASSIGN_OR_RETURN(rule.joined, merge_id(file, pair.left + pair.right));
  return rule;
}

Result<void> read_merges(const JsonFields& model, TokenizerFile& file) {
  const Json* merges = model.find("merges");
  if (merges == nullptr || !merges->is_array()) return invalid_argument("`model.merges`: expected an array");
  file.merges.reserve(merges->size());
  for (const Json& merge : *merges) {
    // The first line of the older merges.txt, which some converters carried over.
    if (merge.is_string() && merge.get_ref<const std::string&>().starts_with("#version")) continue;
    Result<MergeRule> rule = resolve_merge(file, merge);
    if (!rule) {
      return Failure(std::move(rule).error().with_context(fmt::format("`model.merges[{}]`", file.merges.size())));
    }
    file.merges.push_back(*rule);
  }
  return {};
}

// ---- Model
// ------------------------------------------------------------------------------------------------------------

Result<void> refuse_model_variants(const JsonFields& model) {
  NMC_ASSIGN_OR_RETURN(const std::string type, model.string("type"));
  if (type != "BPE") return unsupported("`model.type`: expected \"BPE\", got {}", printable(type));
  NMC_ASSIGN_OR_RETURN(const bool byte_fallback, model.boolean_or("byte_fallback", false));
  if (byte_fallback) return unsupported("`model.byte_fallback`: expected false, got true");
  NMC_ASSIGN_OR_RETURN(const double dropout, model.number_or("dropout", 0.0, 1.0, 0.0));
  if (dropout != 0.0) return unsupported("`model.dropout`: expected null, got {}", dropout);
  for (const std::string_view name : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    NMC_ASSIGN_OR_RETURN(const std::string affix, model.string_or(name, ""));
    if (!affix.empty()) return unsupported("`{}`: expected null, got {}", model.path_of(name), printable(affix));
  }
  return {};
}

Result<void> read_model(const JsonFields& fields, TokenizerFile& file) {
  NMC_ASSIGN_OR_RETURN(const Json* json, part(fields, "model"));
  const JsonFields model(*json, "model");
  NMC_RETURN_IF_ERROR(refuse_model_variants(model));
  NMC_RETURN_IF_ERROR(read_vocabulary(model, file));
  NMC_RETURN_IF_ERROR(read_merges(model, file));
  NMC_ASSIGN_OR_RETURN(file.fuse_unknown, model.boolean_or("fuse_unk", false));
  NMC_ASSIGN_OR_RETURN(file.ignore_merges, model.boolean_or("ignore_merges", false));
  NMC_ASSIGN_OR_RETURN(const std::string unknown, model.string_or("unk_token", ""));
  if (unknown.empty()) return {};
  const auto it = file.ids.find(unknown);
  if (it == file.ids.end()) return corrupt("`model.unk_token`: {} isn't in the vocabulary", printable(unknown));
  file.unknown_id = it->second;
  return {};
}

// ---- Added tokens
// -----------------------------------------------------------------------------------------------------

Result<AddedToken> read_added_token(const Json& json, const std::string& path) {
  const JsonFields fields(json, path);
  AddedToken token;
  NMC_ASSIGN_OR_RETURN(const std::int64_t id, fields.integer("id", 0, UINT32_MAX));
  token.id = static_cast<TokenId>(id);
  NMC_ASSIGN_OR_RETURN(token.content, fields.string("content"));
  if (token.content.empty() || token.content.size() > kAddedTokenBytesMax) {
    return unsupported("`{}`: expected 1 to {} bytes, got {}", fields.path_of("content"), kAddedTokenBytesMax,
                       token.content.size());
  }
  NMC_ASSIGN_OR_RETURN(token.single_word, fields.boolean_or("single_word", false));
  NMC_ASSIGN_OR_RETURN(token.lstrip, fields.boolean_or("lstrip", false));
  NMC_ASSIGN_OR_RETURN(token.rstrip, fields.boolean_or("rstrip", false));
  NMC_ASSIGN_OR_RETURN(token.special, fields.boolean_or("special", false));
  NMC_ASSIGN_OR_RETURN(token.normalized, fields.boolean_or("normalized", !token.special));
  return token;
}

Result<void> add_token(TokenizerFile& file, AddedToken token, std::size_t tokens) {
  const auto known = file.ids.find(token.content);
  if (known == file.ids.end()) {
    NMC_RETURN_IF_ERROR(check_id_range(tokens, token.id));
    NMC_RETURN_IF_ERROR(place_token(file, token.content, token.id));
  } else if (known->second != token.id) {
    return corrupt("added token {} has id {}, but {} in the vocabulary", printable(token.content), token.id,
                   known->second);
  }
  // Ordinary text must never become a control token, and a single byte can't be told from ordinary text.
  if (token.special && bytes_of_text(token.content).size() == 1) {
    return unsupported("added token {} is special, but only one byte long", printable(token.content));
  }
  file.added.push_back(std::move(token));
  return {};
}

Result<void> read_added_tokens(const JsonFields& fields, TokenizerFile& file) {
  const Json* added = fields.find("added_tokens");
  if (added == nullptr) return {};
  if (!added->is_array()) return invalid_argument("`added_tokens`: expected an array");
  const std::size_t tokens = file.texts.size() + added->size();
  std::unordered_map<std::string, std::size_t> seen;
  for (std::size_t i = 0; i < added->size(); ++i) {
    const std::string path = fmt::format("added_tokens[{}]", i);
    if (!(*added)[i].is_object()) return invalid_argument("`{}`: expected an object", path);
    NMC_ASSIGN_OR_RETURN(AddedToken token, read_added_token((*added)[i], path));
    if (!seen.emplace(token.content, i).second) {
      return corrupt("`{}`: {} was added before", path, printable(token.content));
    }
    NMC_RETURN_IF_ERROR(add_token(file, std::move(token), tokens));
  }
  return {};
}

// ---- The steps around the model
// -----------------------------------------------------------------------------------------

// The steps of a part that is one step, a Sequence of steps under `list`, or null; each with its path for messages.
struct Step {
  const Json* json;
  std::string type;
  std::string path;
};
Result<std::vector<Step>> read_steps(const JsonFields& fields, std::string_view name, std::string_view list) {
  std::vector<Step> steps;
  const Json* json = fields.find(name);
  if (json == nullptr) return steps;
  NMC_ASSIGN_OR_RETURN(const std::string type, type_of(*json, std::string(name)));
  if (type != "Sequence") {
    steps.push_back({json, type, std::string(name)});
    return steps;
  }
  const JsonFields sequence(*json, std::string(name));
  const Json* inner = sequence.find(list);
  if (inner == nullptr || !inner->is_array()) {
    return invalid_argument("`{}`: expected an array", sequence.path_of(list));
  }
  for (std::size_t i = 0; i < inner->size(); ++i) {
    std::string path = fmt::format("{}[{}]", sequence.path_of(list), i);
    NMC_ASSIGN_OR_RETURN(std::string inner_type, type_of((*inner)[i], path));
    steps.push_back({&(*inner)[i], std::move(inner_type), std::move(path)});
  }
  return steps;
}

Failure unsupported_step(const Step& step, std::string_view expected) {
  return unsupported("`{}`: expected {}, got {}", step.path, expected, printable(step.type));
}

Result<void> read_pre_tokenizer(const JsonFields& fields, TokenizerFile& file) {
  NMC_ASSIGN_OR_RETURN(const std::vector<Step> steps, read_steps(fields, "pre_tokenizer", "pretokenizers"));
  if (steps.empty()) return unsupported("`pre_tokenizer`: expected ByteLevel, got none");
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const JsonFields step(*steps[i].json, steps[i].path);
    const bool is_last = i + 1 == steps.size();
    if (steps[i].type == "ByteLevel" && is_last) {
      NMC_ASSIGN_OR_RETURN(file.pre_tokenizer.add_prefix_space, step.boolean_or("add_prefix_space", true));
      NMC_ASSIGN_OR_RETURN(file.pre_tokenizer.use_pattern, step.boolean_or("use_regex", true));
    } else if (steps[i].type == "Digits" && i == 0 && !is_last) {
      NMC_ASSIGN_OR_RETURN(const bool individual, step.boolean_or("individual_digits", false));
      file.pre_tokenizer.digits = individual ? PreTokenizer::Digits::kIndividual : PreTokenizer::Digits::kRuns;
    } else {
      return unsupported_step(steps[i], "ByteLevel, or Digits and then ByteLevel");
    }
  }
  return {};
}

// ByteLevel only trims offsets, which nobody asks us for. TemplateProcessing may put one token in front of the text.
Result<void> read_template(const Step& step, TokenizerFile& file) {
  const JsonFields fields(*step.json, step.path);
  const Json* single = fields.find("single");
  const auto is_text = [](const Json& piece) {
    const Json* sequence = JsonFields(piece).find("Sequence");
    return sequence != nullptr && JsonFields(*sequence).string_or("id", "") == std::string("A");
  };
  if (single != nullptr && single->is_array() && single->size() == 1 && is_text(single->front())) return {};
  const bool has_start = single != nullptr && single->is_array() && single->size() == 2 && (*single)[0].is_object() &&
                         (*single)[0].contains("SpecialToken") && is_text((*single)[1]);
  if (!has_start) {
    return unsupported("`{}`: expected one special token or none, then sequence A, got {}", fields.path_of("single"),
                       single == nullptr ? "nothing" : describe_json(*single, 120));
  }
  const JsonFields start((*single)[0]["SpecialToken"], fields.path_of("single[0].SpecialToken"));
  NMC_ASSIGN_OR_RETURN(const std::string name, start.string("id"));
  NMC_ASSIGN_OR_RETURN(const Json* tokens, part(fields, "special_tokens"));
  const JsonFields special(*tokens, fields.path_of("special_tokens"));
  NMC_ASSIGN_OR_RETURN(const Json* token, part(special, name));
  const JsonFields token_fields(*token, special.path_of(name));
  NMC_ASSIGN_OR_RETURN(const std::vector<std::int64_t> ids, token_fields.integers("ids"));
  if (ids.size() != 1 || ids[0] < 0 || static_cast<std::uint64_t>(ids[0]) >= file.texts.size() ||
      file.texts[static_cast<std::size_t>(ids[0])].empty()) {
    return corrupt("`{}`: expected the id of one token of the vocabulary", token_fields.path_of("ids"));
  }
  file.template_bos = static_cast<TokenId>(ids[0]);
  return {};
}

Result<void> read_post_processor(const JsonFields& fields, TokenizerFile& file) {
  NMC_ASSIGN_OR_RETURN(const std::vector<Step> steps, read_steps(fields, "post_processor", "processors"));
  for (const Step& step : steps) {
    if (step.type == "ByteLevel") continue;
    if (step.type != "TemplateProcessing") return unsupported_step(step, "ByteLevel or TemplateProcessing");
    NMC_RETURN_IF_ERROR(read_template(step, file));
  }
  return {};
}

Result<void> check_decoder(const JsonFields& fields) {
  NMC_ASSIGN_OR_RETURN(const std::vector<Step> steps, read_steps(fields, "decoder", "decoders"));
  if (steps.empty()) return unsupported("`decoder`: expected ByteLevel, got none");
  for (const Step& step : steps) {
    if (step.type != "ByteLevel" || steps.size() > 1) return unsupported_step(step, "ByteLevel alone");
  }
  return {};
}

Result<TokenizerFile> parse_parts(const Json& json) {
  if (!json.is_object()) return invalid_argument("expected an object, got {}", json_type_name(json));
  const JsonFields fields(json);
  TokenizerFile file;
  if (const Json* normalizer = fields.find("normalizer")) {
    NMC_ASSIGN_OR_RETURN(const std::string type, type_of(*normalizer, "normalizer"));
    return unsupported("`normalizer`: expected null, got {}", printable(type));
  }
  // Padding and truncation are for batches of training; callers of ours set their own limits.
  NMC_RETURN_IF_ERROR(read_model(fields, file));
  NMC_RETURN_IF_ERROR(read_added_tokens(fields, file));
  NMC_RETURN_IF_ERROR(read_pre_tokenizer(fields, file));
  NMC_RETURN_IF_ERROR(read_post_processor(fields, file));
  NMC_RETURN_IF_ERROR(check_decoder(fields));
  return file;
}

}  // namespace

char32_t byte_to_character(std::uint8_t byte) { return kCharacterOfByte[byte]; }

std::optional<std::uint8_t> character_to_byte(char32_t character) {
  if (character >= kByteOfCharacter.size() || kByteOfCharacter[character] < 0) return std::nullopt;
  return static_cast<std::uint8_t>(kByteOfCharacter[character]);
}

std::string bytes_of_text(std::string_view text) {
  std::string bytes;
  for (std::size_t at = 0; at < text.size();) {
    const Utf8Char next = utf8_char_at(text, at);
    const std::optional<std::uint8_t> byte = character_to_byte(next.code);
    if (!byte) return std::string(text);
    bytes.push_back(static_cast<char>(*byte));
    at += next.bytes;
  }
  return bytes;
}

Result<TokenizerFile> parse_tokenizer_file(std::string_view json_text, std::string_view name) {
  NMC_ASSIGN_OR_RETURN(const Json json, parse_json(json_text, name));
  Result<TokenizerFile> file = parse_parts(json);
  if (!file) return Failure(std::move(file).error().with_context(name));
  return file;
}

}  // namespace nmc::model
