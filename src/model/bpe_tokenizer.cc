#include "model/bpe_tokenizer.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "model/unicode.h"

namespace nmc::model {
namespace {

constexpr std::uint64_t kTokenizerBytesMax = 256 << 20;
constexpr std::uint64_t kConfigBytesMax = 16 << 20;

bool is_there(const Path& path) {
  std::error_code error;
  return std::filesystem::exists(path, error);
}

// "</s>" or {"content": "</s>", ...}; "" when absent.
Result<std::string> token_name(const JsonFields& fields, std::string_view name) {
  const Json* value = fields.find(name);
  if (value != nullptr && value->is_object()) return JsonFields(*value, fields.path_of(name)).string("content");
  return fields.string_or(name, "");
}

// A token that the config names is a control token, whether or not the file lists it as one.
Result<std::optional<TokenId>> control_token(TokenizerFile& file, std::string_view field, const std::string& text) {
  if (text.empty()) return std::optional<TokenId>();
  const auto it = file.ids.find(text);
  if (it == file.ids.end() || bytes_of_text(text).size() == 1 || text.size() > kAddedTokenBytesMax) {
    return corrupt("`{}`: expected a token of tokenizer.json of more than one byte, got {}", field,
                   describe_json(Json(text)));
  }
  const auto added = std::ranges::find(file.added, it->second, &AddedToken::id);
  if (added != file.added.end()) {
    added->special = true;
  } else {
    file.added.push_back({.id = it->second, .content = text, .special = true});
  }
  return std::optional(it->second);
}

std::vector<AddedToken> added_with(const TokenizerFile& file, bool normalized) {
  std::vector<AddedToken> tokens;
  std::ranges::copy_if(file.added, std::back_inserter(tokens),
                       [&](const AddedToken& token) { return token.normalized == normalized; });
  return tokens;
}

// Rules that make a control token are left out: only the matcher of added tokens makes those, and only where asked.
std::vector<MergeRule> ordinary_merges(const TokenizerFile& file) {
  std::vector<bool> is_special(file.texts.size());
  for (const AddedToken& token : file.added) is_special[token.id] = token.special;
  std::vector<MergeRule> rules;
  std::ranges::copy_if(file.merges, std::back_inserter(rules),
                       [&](const MergeRule& rule) { return !is_special[rule.joined]; });
  return rules;
}

}  // namespace

// ---- Loading
// ----------------------------------------------------------------------------------------------------------

Result<TokenizerConfig> parse_tokenizer_config(std::string_view json_text, std::string_view name) {
  const auto parse = [&]() -> Result<TokenizerConfig> {
    NMC_ASSIGN_OR_RETURN(const Json json, parse_json(json_text, "JSON"));
    if (!json.is_object()) return invalid_argument("expected an object, got {}", json_type_name(json));
    const JsonFields fields(json);
    TokenizerConfig config;
    NMC_ASSIGN_OR_RETURN(config.bos_token, token_name(fields, "bos_token"));
    NMC_ASSIGN_OR_RETURN(config.eos_token, token_name(fields, "eos_token"));
    if (fields.find("add_bos_token") != nullptr) {
      NMC_ASSIGN_OR_RETURN(config.add_bos_token, fields.boolean("add_bos_token"));
    }
    return config;
  };
  Result<TokenizerConfig> config = parse();
  if (!config) return Failure(std::move(config).error().with_context(name));
  return config;
}

Result<std::unique_ptr<BpeTokenizer>> BpeTokenizer::load(const Path& folder) {
  const Path path = folder / "tokenizer.json";
  if (!is_there(path)) {
    const char* other = is_there(folder / "tokenizer.model") ? "; tokenizer.model alone isn't supported" : "";
    return not_found("{}: no such file{}", path.string(), other);
  }
  NMC_ASSIGN_OR_RETURN(const std::string text, read_file(path, kTokenizerBytesMax));
  NMC_ASSIGN_OR_RETURN(TokenizerFile file, parse_tokenizer_file(text, path.string()));

  const Path config_path = folder / "tokenizer_config.json";
  TokenizerConfig config;
  if (is_there(config_path)) {
    NMC_ASSIGN_OR_RETURN(const std::string config_text, read_file(config_path, kConfigBytesMax));
    NMC_ASSIGN_OR_RETURN(config, parse_tokenizer_config(config_text, config_path.string()));
  }
  Result<std::unique_ptr<BpeTokenizer>> tokenizer = make(std::move(file), config, text);
  if (!tokenizer) return Failure(std::move(tokenizer).error().with_context(config_path.string()));
  return tokenizer;
}

Result<std::unique_ptr<BpeTokenizer>> BpeTokenizer::make(TokenizerFile file, const TokenizerConfig& config,
                                                         std::string_view source) {
  NMC_ASSIGN_OR_RETURN(std::optional<TokenId> bos, control_token(file, "bos_token", config.bos_token));
  NMC_ASSIGN_OR_RETURN(const std::optional<TokenId> eos, control_token(file, "eos_token", config.eos_token));
  if (!bos) bos = file.template_bos;
  const bool adds_bos = config.add_bos_token.value_or(file.template_bos.has_value());
  if (adds_bos && !bos) return corrupt("`add_bos_token`: true, but there is no `bos_token`");
  if (adds_bos && file.template_bos) bos = file.template_bos;

  std::unique_ptr<BpeTokenizer> tokenizer(new BpeTokenizer(std::move(file)));
  tokenizer->bos_id_ = bos;
  tokenizer->adds_bos_ = adds_bos;
  if (eos) tokenizer->eos_ids_.push_back(*eos);
  Sha256 hash;
  hash.update_field("nano-mooncake/bpe-tokenizer/v1").update_field(source);
  hash.update_field(fmt::format("bos={} adds_bos={}", config.bos_token, adds_bos));
  hash.update_field(config.eos_token);
  tokenizer->digest_ = hash.finish();
  return tokenizer;
}

BpeTokenizer::BpeTokenizer(TokenizerFile file)
    : is_special_(file.texts.size()),
      unknown_id_(file.unknown_id),
      fuse_unknown_(file.fuse_unknown),
      pre_tokenizer_(file.pre_tokenizer),
      merger_(ordinary_merges(file)),
      exact_(added_with(file, false)),
      normalized_(added_with(file, true)) {
  for (const AddedToken& token : file.added) {
    if (!token.special) continue;
    is_special_[token.id] = true;
    special_ids_.emplace(token.content, token.id);
  }
  for (std::size_t byte = 0; byte < byte_ids_.size(); ++byte) {
    std::string text;
    append_utf8(text, byte_to_character(static_cast<std::uint8_t>(byte)));
    if (const auto it = file.ids.find(text); it != file.ids.end()) byte_ids_[byte] = it->second;
  }
  texts_.reserve(file.texts.size());
  for (TokenId id = 0; id < file.texts.size(); ++id) {
    texts_.push_back(bytes_of_text(file.texts[id]));
    if (file.ignore_merges && !texts_[id].empty() && !is_special_[id]) whole_pieces_.emplace(texts_[id], id);
  }
}

// ---- Encoding
// -----------------------------------------------------------------------------------------------------------

namespace {

// The parts as one text, in `joined` where there are several.
std::string_view join_parts(std::span<const TextPart> parts, std::string& joined, std::vector<MarkerRange>& ranges) {
  std::size_t end = 0;
  for (const TextPart& part : parts) ranges.push_back({end += part.text.size(), part.parse_special});
  if (parts.size() == 1) return parts.front().text;
  joined.reserve(end);
  for (const TextPart& part : parts) joined += part.text;
  return joined;
}

}  // namespace

// Text repeats itself: the ids of each short piece are looked up from its first occurrence.
class BpeTokenizer::Encoding {
 public:
  Encoding(const BpeTokenizer& tokenizer, std::vector<TokenId>& ids) : tokenizer_(tokenizer), ids_(ids) {}

  void add_text(std::string_view text) {
    tokenizer_.pre_tokenizer_.for_each_piece(text, [&](std::string_view piece) { add_piece(piece); });
  }

 private:
  static constexpr std::size_t kRememberedBytesMax = 64;

  struct Range {
    std::size_t begin = 0;  // in ids_
    std::size_t end = 0;
  };

  void add_piece(std::string_view piece) {
    if (piece.size() > kRememberedBytesMax) {
      add_new_piece(piece);
      return;
    }
    key_.assign(piece);
    if (const auto it = seen_.find(key_); it != seen_.end()) {
      for (std::size_t i = it->second.begin; i < it->second.end; ++i) ids_.push_back(TokenId{ids_[i]});
      return;
    }
    const std::size_t begin = ids_.size();
    add_new_piece(piece);
    seen_.emplace(key_, Range{begin, ids_.size()});
  }

  void add_new_piece(std::string_view piece) {
    if (!tokenizer_.whole_pieces_.empty()) {
      const auto whole = tokenizer_.whole_pieces_.find(std::string(piece));
      if (whole != tokenizer_.whole_pieces_.end()) {
        ids_.push_back(whole->second);
        return;
      }
    }
    read_bytes(piece);
    tokenizer_.merger_.merge(bytes_, scratch_, ids_);
  }

  void read_bytes(std::string_view piece) {
    bytes_.clear();
    bool after_unknown = false;
    for (const char byte : piece) {
      const std::optional<TokenId> id = tokenizer_.byte_ids_[static_cast<unsigned char>(byte)];
      if (id) {
        bytes_.push_back(*id);
      } else if (tokenizer_.unknown_id_ && !(after_unknown && tokenizer_.fuse_unknown_)) {
        bytes_.push_back(*tokenizer_.unknown_id_);
      }
      after_unknown = !id;
    }
  }

  const BpeTokenizer& tokenizer_;
  std::vector<TokenId>& ids_;
  std::string key_;
  std::unordered_map<std::string, Range> seen_;
  std::vector<TokenId> bytes_;
  BpeMerger::Scratch scratch_;
};

std::vector<TokenId> BpeTokenizer::encode_parts(std::span<const TextPart> parts, bool add_bos) const {
  std::vector<TokenId> ids;
  if (add_bos && adds_bos_) ids.push_back(*bos_id_);
  std::string joined;
  std::vector<MarkerRange> ranges;
  const std::string_view text = join_parts(parts, joined, ranges);
  Encoding encoding(*this, ids);
  exact_.for_each_part(text, ranges, [&](const AddedTokenMatcher::Part& part) {
    if (part.token != nullptr) {
      ids.push_back(part.token->id);
      return;
    }
    const auto begin = static_cast<std::size_t>(part.text.data() - text.data());
    const std::vector<MarkerRange> inner_ranges = ranges_within(ranges, begin, part.text.size());
    normalized_.for_each_part(part.text, inner_ranges, [&](const AddedTokenMatcher::Part& inner) {
      if (inner.token != nullptr) {
        ids.push_back(inner.token->id);
      } else {
        encoding.add_text(inner.text);
      }
    });
  });
  return ids;
}

std::string_view BpeTokenizer::token_text(TokenId id) const {
  return id < texts_.size() ? std::string_view(texts_[id]) : std::string_view();
}

std::optional<TokenId> BpeTokenizer::special_id(std::string_view text) const {
  const auto it = special_ids_.find(std::string(text));
  return it == special_ids_.end() ? std::nullopt : std::optional(it->second);
}

}  // namespace nmc::model
