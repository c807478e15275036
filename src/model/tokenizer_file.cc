#include "model/tokenizer_file.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "model/tokenizer_steps.h"
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
  NMC_ASSIGN_OR_RETURN(const Json* vocab, json_part(model, "vocab"));
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
  NMC_ASSIGN_OR_RETURN(const double dropout, model.number_or("dropout", 0.0, 1.0, 0.0));
  if (dropout != 0.0) return unsupported("`model.dropout`: expected null, got {}", dropout);
  for (const std::string_view name : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    NMC_ASSIGN_OR_RETURN(const std::string affix, model.string_or(name, ""));
    if (!affix.empty()) return unsupported("`{}`: expected null, got {}", model.path_of(name), printable(affix));
  }
  return {};
}

Result<void> read_model(const JsonFields& fields, TokenizerFile& file) {
  NMC_ASSIGN_OR_RETURN(const Json* json, json_part(fields, "model"));
  const JsonFields model(*json, "model");
  NMC_RETURN_IF_ERROR(refuse_model_variants(model));
  NMC_RETURN_IF_ERROR(read_vocabulary(model, file));
  NMC_RETURN_IF_ERROR(read_merges(model, file));
  NMC_ASSIGN_OR_RETURN(file.fuse_unknown, model.boolean_or("fuse_unk", false));
  NMC_ASSIGN_OR_RETURN(file.ignore_merges, model.boolean_or("ignore_merges", false));
  NMC_ASSIGN_OR_RETURN(file.byte_fallback, model.boolean_or("byte_fallback", false));
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
  // Ordinary text must never become a control token, and a single symbol can't be told from ordinary text.
  if (token.special && is_one_symbol(token.content, file.byte_level)) {
    return unsupported("added token {} is special, but only one {} long", printable(token.content),
                       file.byte_level ? "byte" : "character");
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

Result<TokenizerFile> parse_parts(const Json& json) {
  if (!json.is_object()) return invalid_argument("expected an object, got {}", json_type_name(json));
  const JsonFields fields(json);
  TokenizerFile file;
  // Padding and truncation are for batches of training; callers of ours set their own limits.
  NMC_ASSIGN_OR_RETURN(file.normalizer, read_normalizer(fields));
  NMC_ASSIGN_OR_RETURN(file.pre_tokenizer, read_pre_tokenizer(fields));
  NMC_ASSIGN_OR_RETURN(file.decoder, read_decoder(fields));
  file.byte_level = ends_in_bytes(file.pre_tokenizer);
  NMC_RETURN_IF_ERROR(read_model(fields, file));
  NMC_RETURN_IF_ERROR(read_added_tokens(fields, file));
  NMC_ASSIGN_OR_RETURN(file.template_bos, read_start_token(fields, file.texts));
  return file;
}

}  // namespace

char32_t byte_to_character(std::uint8_t byte) { return kCharacterOfByte[byte]; }

std::optional<std::uint8_t> character_to_byte(char32_t character) {
  if (character >= kByteOfCharacter.size() || kByteOfCharacter[character] < 0) return std::nullopt;
  return static_cast<std::uint8_t>(kByteOfCharacter[character]);
}

std::optional<std::string> alphabet_bytes(std::string_view text) {
  std::string bytes;
  for (std::size_t at = 0; at < text.size();) {
    const Utf8Char next = utf8_char_at(text, at);
    const std::optional<std::uint8_t> byte = character_to_byte(next.code);
    if (!byte) return std::nullopt;
    bytes.push_back(static_cast<char>(*byte));
    at += next.bytes;
  }
  return bytes;
}

std::string bytes_of_text(std::string_view text) { return alphabet_bytes(text).value_or(std::string(text)); }

bool is_one_symbol(std::string_view text, bool byte_level) {
  if (byte_level) return bytes_of_text(text).size() == 1;
  return !text.empty() && utf8_char_at(text, 0).bytes == text.size();
}

Result<TokenizerFile> parse_tokenizer_file(std::string_view json_text, std::string_view name) {
  NMC_ASSIGN_OR_RETURN(const Json json, parse_json(json_text, name));
  Result<TokenizerFile> file = parse_parts(json);
  if (!file) return Failure(std::move(file).error().with_context(name));
  return file;
}

}  // namespace nmc::model
