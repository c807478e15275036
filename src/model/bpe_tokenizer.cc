#include "model/bpe_tokenizer.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "model/piece_cache.h"

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
  if (it == file.ids.end() || is_one_symbol(text, file.byte_level) || text.size() > kAddedTokenBytesMax) {
    return corrupt("`{}`: expected a token of tokenizer.json of more than one {}, got {}", field,
                   file.byte_level ? "byte" : "character", describe_json(Json(text)));
  }
  const auto added = std::ranges::find(file.added, it->second, &AddedToken::id);
  if (added != file.added.end()) {
    added->special = true;
  } else {
    file.added.push_back({.id = it->second, .content = text, .special = true});
  }
  return std::optional(it->second);
}

std::vector<AddedToken> exact_tokens(const TokenizerFile& file) {
  std::vector<AddedToken> tokens;
  std::ranges::copy_if(file.added, std::back_inserter(tokens),
                       [](const AddedToken& token) { return !token.normalized; });
  return tokens;
}

// The others, as they look in normalized text.
Result<std::vector<AddedToken>> normalized_tokens(const TokenizerFile& file) {
  std::vector<AddedToken> tokens;
  std::unordered_map<std::string, std::string> seen;
  for (const AddedToken& token : file.added) {
    if (!token.normalized) continue;
    AddedToken made = token;
    made.content = file.normalizer.apply(token.content);
    if (made.content.empty() || made.content.size() > kAddedTokenBytesMax) {
      return unsupported("added token {} has {} bytes once it is normalized, expected 1 to {}",
                         describe_json(Json(token.content)), made.content.size(), kAddedTokenBytesMax);
    }
    const auto [other, is_new] = seen.emplace(made.content, token.content);
    if (!is_new) {
      return corrupt("added tokens {} and {} are the same once they are normalized", describe_json(Json(other->second)),
                     describe_json(Json(token.content)));
    }
    tokens.push_back(std::move(made));
  }
  return tokens;
}

std::vector<bool> special_ids_of(const TokenizerFile& file) {
  std::vector<bool> is_special(file.texts.size());
  for (const AddedToken& token : file.added) is_special[token.id] = is_special[token.id] || token.special;
  return is_special;
}

// Rules that make a control token are left out: only the matcher of added tokens makes those, and only where asked.
BpeMerger ordinary_merges(const TokenizerFile& file, const std::vector<bool>& is_special) {
  std::vector<MergeRule> rules;
  std::vector<std::uint32_t> ranks;
  for (std::size_t i = 0; i < file.merges.size(); ++i) {
    if (is_special[file.merges[i].joined]) continue;
    rules.push_back(file.merges[i]);
    if (!file.merge_ranks.empty()) ranks.push_back(file.merge_ranks[i]);
  }
  return BpeMerger(rules, ranks);
}

std::size_t common_prefix(std::string_view a, std::string_view b) {
  return static_cast<std::size_t>(std::ranges::mismatch(a, b).in1 - a.begin());
}

std::size_t common_suffix(std::string_view a, std::string_view b) {
  const auto end = std::mismatch(a.rbegin(), a.rend(), b.rbegin(), b.rend()).first;
  return static_cast<std::size_t>(end - a.rbegin());
}

// Finding where parts lie in normalized text may take this much, in bytes that are normalized.
constexpr std::size_t kBorderWorkPerByte = 64;
constexpr std::size_t kBorderWorkAtLeast = 1 << 20;

constexpr std::string_view kMark = "\u2581";  // stands for a space in texts of such vocabularies

// Whether text may be cut before each mark that follows something else, because no merge joins the two sides. Then a
// text without spaces left in it is as fast as one that was cut at them.
bool stops_at_marks(const TokenizerFile& file, const std::vector<bool>& is_special) {
  const auto mark = file.ids.find(std::string(kMark));
  if (file.byte_level || file.ignore_merges || mark == file.ids.end() || is_special[mark->second]) return false;
  if (file.unknown_id && file.texts[*file.unknown_id].ends_with(kMark)) return false;
  return std::ranges::none_of(file.merges, [&](const MergeRule& rule) {
    return file.texts[rule.right].starts_with(kMark) && !file.texts[rule.left].ends_with(kMark);
  });
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

  NMC_ASSIGN_OR_RETURN(std::vector<AddedToken> normalized, normalized_tokens(file));

  std::unique_ptr<BpeTokenizer> tokenizer(new BpeTokenizer(std::move(file), AddedTokenMatcher(std::move(normalized))));
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

BpeTokenizer::BpeTokenizer(TokenizerFile file, AddedTokenMatcher normalized)
    : is_special_(special_ids_of(file)),
      symbols_(file, is_special_),
      merger_(ordinary_merges(file, is_special_)),
      cuts_at_marks_(stops_at_marks(file, is_special_)),
      normalizer_(std::move(file.normalizer)),
      pre_tokenizer_(std::move(file.pre_tokenizer)),
      exact_(exact_tokens(file)),
      normalized_(std::move(normalized)),
      decoder_(std::move(file.decoder)),
      is_byte_(file.texts.size()) {
  if (file.ignore_merges) {
    for (TokenId id = 0; id < file.texts.size(); ++id) {
      if (file.texts[id].empty() || is_special_[id]) continue;
      const std::optional<std::string> piece = file.byte_level ? alphabet_bytes(file.texts[id]) : file.texts[id];
      if (piece) whole_pieces_.emplace(*piece, id);
    }
  }
  // Where added tokens are looked for in normalized text, that is what they stand for.
  for (const AddedToken& token : file.added) {
    if (token.special) special_ids_.emplace(token.content, token.id);
    if (token.normalized) file.texts[token.id] = normalizer_.apply(token.content);
  }
  texts_.reserve(file.texts.size());
  for (TokenId id = 0; id < file.texts.size(); ++id) {
    const std::string& text = file.texts[id];
    texts_.push_back(decoder_.byte_level ? bytes_of_text(text) : decoder_.text_of(text, false));
    const std::optional<std::uint8_t> byte = decoder_.byte_fallback ? named_byte(texts_[id]) : std::nullopt;
    is_byte_[id] = byte.has_value();
    if (byte) texts_[id] = static_cast<char>(*byte);
  }
  if (decoder_.first_differs()) raw_texts_ = std::move(file.texts);
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

class BpeTokenizer::Encoding {
 public:
  Encoding(const BpeTokenizer& tokenizer, std::vector<TokenId>& ids) : tokenizer_(tokenizer), ids_(ids) {}

  void add_token(TokenId id) { ids_.push_back(id); }

  void add_text(std::string_view text, bool at_start) {
    tokenizer_.pre_tokenizer_.for_each_piece(text, at_start, [&](std::string_view piece) {
      if (tokenizer_.cuts_at_marks_) {
        add_cut(piece);
      } else {
        add_piece(piece);
      }
    });
  }

 private:
  void add_cut(std::string_view piece) {
    std::size_t begin = 0;
    for (std::size_t at = piece.find(kMark); at != piece.npos; at = piece.find(kMark, at + kMark.size())) {
      if (at == begin || piece.substr(0, at).ends_with(kMark)) continue;
      add_piece(piece.substr(begin, at - begin));
      begin = at;
    }
    add_piece(piece.substr(begin));
  }

  void add_piece(std::string_view piece) {
    if (piece.size() > PieceCache::kPieceBytesMax) {
      add_new_piece(piece);
      return;
    }
    const PieceCache::Place place = seen_.place_of(piece);
    if (const std::optional<PieceCache::Range> range = seen_.at(place)) {
      for (std::size_t i = 0; i < range->size; ++i) ids_.push_back(TokenId{ids_[range->begin + i]});
      return;
    }
    const std::size_t begin = ids_.size();
    add_new_piece(piece);
    seen_.put(place, piece, {static_cast<std::uint32_t>(begin), static_cast<std::uint32_t>(ids_.size() - begin)});
  }

  void add_new_piece(std::string_view piece) {
    if (!tokenizer_.whole_pieces_.empty()) {
      const auto whole = tokenizer_.whole_pieces_.find(std::string(piece));
      if (whole != tokenizer_.whole_pieces_.end()) {
        ids_.push_back(whole->second);
        return;
      }
    }
    row_.clear();
    tokenizer_.symbols_.append(piece, row_);
    tokenizer_.merger_.merge(row_, scratch_, ids_);
  }

  const BpeTokenizer& tokenizer_;
  std::vector<TokenId>& ids_;
  PieceCache seen_;
  std::vector<TokenId> row_;
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
      encoding.add_token(part.token->id);
      return;
    }
    const auto begin = static_cast<std::size_t>(part.text.data() - text.data());
    encode_section(part.text, ranges_within(ranges, begin, part.text.size()), begin == 0, encoding);
  });
  return ids;
}

// A stretch of text between exact tokens.
void BpeTokenizer::encode_section(std::string_view section, std::vector<MarkerRange> ranges, bool at_start,
                                  Encoding& encoding) const {
  std::string storage;
  const std::string_view text = normalizer_.apply(section, storage);
  if (normalized_.empty()) {
    encoding.add_text(text, at_start);
    return;
  }
  normalized_.for_each_part(text, normalized_ranges(section, std::move(ranges), text),
                            [&](const AddedTokenMatcher::Part& part) {
                              if (part.token != nullptr) {
                                encoding.add_token(part.token->id);
                              } else {
                                encoding.add_text(part.text, at_start && part.text.data() == text.data());
                              }
                            });
}

// Where in normalized text the ranges lie that may spell control tokens. What steps did to a whole text can't be told
// part by part, since they may join, move or drop characters; a range is where two texts agree with the whole: that
// before its end, normalized alone, and that from its begin on. No byte of another part gets in.
std::vector<MarkerRange> BpeTokenizer::normalized_ranges(std::string_view section, std::vector<MarkerRange> ranges,
                                                         std::string_view normalized) const {
  if (normalized == section) return ranges;
  if (!normalized_.has_special()) return {{normalized.size(), false}};
  std::vector<MarkerRange> found;
  std::size_t work_left = kBorderWorkAtLeast + kBorderWorkPerByte * section.size();
  std::size_t begin = 0;
  std::size_t last = 0;
  for (const MarkerRange& range : ranges) {
    const std::string_view before_end = section.substr(0, range.end);
    const std::string_view from_begin = section.substr(begin);
    begin = range.end;
    if (!range.parse_special) continue;
    // With a great many parts the rest counts as what a user wrote.
    if (work_left < before_end.size() + from_begin.size()) break;
    work_left -= before_end.size() + from_begin.size();
    const std::size_t end = common_prefix(normalizer_.apply(before_end), normalized);
    const std::size_t start = normalized.size() - common_suffix(normalizer_.apply(from_begin), normalized);
    if (std::max(start, last) >= end) continue;
    if (start > last) found.push_back({start, false});
    found.push_back({end, true});
    last = end;
  }
  if (last < normalized.size()) found.push_back({normalized.size(), false});
  return found;
}

// ---- Decoding
// -----------------------------------------------------------------------------------------------------------

DecodeRules BpeTokenizer::decode_rules() const {
  return {.first_differs = decoder_.first_differs(),
          .byte_runs = decoder_.byte_fallback,
          .strip = decoder_.strip,
          .strip_max = decoder_.strip_max};
}

std::optional<std::string> BpeTokenizer::first_token_text(TokenId id) const {
  if (raw_texts_.empty()) return Tokenizer::first_token_text(id);
  if (id >= raw_texts_.size() || raw_texts_[id].empty()) return std::nullopt;
  return is_byte_[id] ? texts_[id] : decoder_.text_of(raw_texts_[id], true);
}

std::string_view BpeTokenizer::token_text(TokenId id) const {
  return id < texts_.size() ? std::string_view(texts_[id]) : std::string_view();
}

std::optional<TokenId> BpeTokenizer::special_id(std::string_view text) const {
  const auto it = special_ids_.find(std::string(text));
  return it == special_ids_.end() ? std::nullopt : std::optional(it->second);
}

}  // namespace nmc::model
