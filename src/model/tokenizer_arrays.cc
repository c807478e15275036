#include "model/tokenizer_arrays.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <span>

#include "base/json.h"
#include "model/bpe_tokenizer.h"
#include "model/piece_patterns.h"
#include "model/tokenizer_steps.h"

namespace nmc::model {
namespace {

// Finding the ways to join two tokens to a third takes the square of each token's bytes: for tokens of known models,
// which have up to about a hundred, some 20 MB in all.
constexpr std::size_t kSpmTokenBytesMax = 512;
constexpr std::size_t kSpmWorkMax = std::size_t{1} << 30;
constexpr std::string_view kMark = "\u2581";  // a space in texts of tokens

std::int32_t type_of(const TokenizerArrays& arrays, std::size_t id) {
  return arrays.types.empty() ? TokenizerArrays::kNormal : arrays.types[id];
}

Result<void> check_sizes(const TokenizerArrays& arrays) {
  const std::size_t tokens = arrays.tokens.size();
  if (tokens == 0 || tokens > UINT32_MAX / 2) return corrupt("tokens: expected at least one, got {}", tokens);
  if (!arrays.types.empty() && arrays.types.size() != tokens) {
    return corrupt("token types: expected as many as tokens, {}, got {}", tokens, arrays.types.size());
  }
  for (std::size_t id = 0; id < tokens; ++id) {
    if (!is_valid_utf8(arrays.tokens[id])) return corrupt("tokens[{}]: expected UTF-8", id);
  }
  for (const auto& [name, id] : {std::pair("start", arrays.bos_id), std::pair("end", arrays.eos_id)}) {
    if (id && (*id >= tokens || arrays.tokens[*id].empty())) {
      return corrupt("{} token: expected an id of one of {} tokens, got {}", name, tokens, *id);
    }
  }
  return {};
}

// Texts, ids and added tokens.
Result<TokenizerFile> read_tokens(TokenizerArrays& arrays) {
  NMC_RETURN_IF_ERROR(check_sizes(arrays));
  TokenizerFile file;
  for (TokenId id = 0; id < arrays.tokens.size(); ++id) {
    const std::string& text = arrays.tokens[id];
    const std::int32_t type = type_of(arrays, id);
    const bool is_control = type == TokenizerArrays::kControl || type == TokenizerArrays::kUnknown;
    if (text.empty() || !file.ids.emplace(text, id).second) continue;
    if (type == TokenizerArrays::kUnknown && !file.unknown_id) file.unknown_id = id;
    if (!is_control && type != TokenizerArrays::kUserDefined) continue;
    if (text.size() > kAddedTokenBytesMax) {
      return unsupported("tokens[{}]: expected at most {} bytes, got {}", id, kAddedTokenBytesMax, text.size());
    }
    file.added.push_back({.id = id, .content = text, .special = is_control});
  }
  file.texts = std::move(arrays.tokens);
  return file;
}

// A digest of the arrays as they came stands for the file they came from.
std::string digest_of(const TokenizerArrays& arrays, std::string_view kind) {
  Sha256 hash;
  hash.update_field("nano-mooncake/tokenizer-arrays/v1").update_field(kind);
  const auto add_all = [&](const std::vector<std::string>& texts) {
    hash.update_field(std::to_string(texts.size()));
    for (const std::string& text : texts) hash.update_field(text);
  };
  const auto add_numbers = [&](const auto& numbers) {
    hash.update_field({reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof numbers[0]});
  };
  add_all(arrays.tokens);
  add_all(arrays.merges);
  add_numbers(arrays.scores);
  add_numbers(arrays.types);
  hash.update_field(arrays.pre_tokenizer);
  hash.update_field(fmt::format("bos={} eos={} prefix={}", arrays.bos_id ? std::to_string(*arrays.bos_id) : "none",
                                arrays.eos_id ? std::to_string(*arrays.eos_id) : "none", arrays.add_space_prefix));
  return hash.finish().hex();
}

// `by_default`: whether a start token is added when the arrays don't say.
Result<std::unique_ptr<Tokenizer>> make(TokenizerFile file, const TokenizerArrays& arrays, bool by_default,
                                        std::string_view digest) {
  TokenizerConfig config;
  if (arrays.bos_id) config.bos_token = file.texts[*arrays.bos_id];
  if (arrays.eos_id) config.eos_token = file.texts[*arrays.eos_id];
  config.add_bos_token = arrays.bos_id.has_value() && arrays.add_bos.value_or(by_default);
  NMC_ASSIGN_OR_RETURN(std::unique_ptr<BpeTokenizer> tokenizer, BpeTokenizer::make(std::move(file), config, digest));
  return std::unique_ptr<Tokenizer>(std::move(tokenizer));
}

// ---- SentencePiece
// ----------------------------------------------------------------------------------------------------

// The place of each token's score among all scores, the highest first, equal ones together.
Result<std::vector<std::uint32_t>> rank_scores(std::span<const float> scores) {
  std::vector<float> sorted(scores.begin(), scores.end());
  for (std::size_t id = 0; id < sorted.size(); ++id) {
    if (std::isnan(sorted[id])) return corrupt("scores[{}]: expected a number", id);
  }
  std::ranges::sort(sorted, std::greater());
  sorted.erase(std::unique(sorted.begin(), sorted.end()), sorted.end());
  std::vector<std::uint32_t> ranks;
  ranks.reserve(scores.size());
  for (const float score : scores) {
    ranks.push_back(
        static_cast<std::uint32_t>(std::ranges::lower_bound(sorted, score, std::greater()) - sorted.begin()));
  }
  return ranks;
}

// Each way to join two tokens to a third.
Result<void> add_merges(const TokenizerArrays& arrays, std::span<const std::uint32_t> ranks, TokenizerFile& file) {
  const auto is_ordinary = [&](TokenId id) { return type_of(arrays, id) == TokenizerArrays::kNormal; };
  std::size_t work = 0;
  for (TokenId id = 0; id < file.texts.size(); ++id) {
    const std::string& text = file.texts[id];
    if (text.size() < 2 || !is_ordinary(id) || file.ids.at(text) != id) continue;
    if (text.size() > kSpmTokenBytesMax) {
      return unsupported("tokens[{}]: expected at most {} bytes, got {}", id, kSpmTokenBytesMax, text.size());
    }
    work += text.size() * text.size();
    if (work > kSpmWorkMax) return unsupported("tokens: expected shorter ones, or fewer");
    for (std::size_t cut = 1; cut < text.size(); ++cut) {
      const auto left = file.ids.find(text.substr(0, cut));
      if (left == file.ids.end() || !is_ordinary(left->second)) continue;
      const auto right = file.ids.find(text.substr(cut));
      if (right == file.ids.end() || !is_ordinary(right->second)) continue;
      file.merges.push_back({left->second, right->second, id});
      file.merge_ranks.push_back(ranks[id]);
    }
  }
  return {};
}

void add_spm_steps(bool add_space_prefix, TokenizerFile& file) {
  const auto replace = [](std::string_view from, std::string_view to) {
    return ReplaceStep{std::make_shared<const Regex>(Regex::literal(from)), std::string(to)};
  };
  std::vector<Normalizer::Step> steps;
  if (add_space_prefix) steps.emplace_back(PrependStep{std::string(kMark)});
  steps.emplace_back(replace(" ", kMark));
  file.normalizer = Normalizer(std::move(steps));
  file.decoder.steps.emplace_back(replace(kMark, " "));
  file.decoder.byte_fallback = true;
  file.decoder.strip = ' ';
  file.decoder.strip_max = add_space_prefix ? 1 : 0;
}

// ---- Bytes
// ------------------------------------------------------------------------------------------------------------

enum class Cut : std::uint8_t { kGpt2, kDigitsGpt2, kLlama3, kQwen2, kGpt4o };

struct NamedCut {
  std::string_view name;
  Cut cut;
};

// Names as llama.cpp's converter writes them into files.
constexpr NamedCut kNamedCuts[] = {
    {"gpt-2", Cut::kGpt2},
    {"phi-2", Cut::kGpt2},
    {"mpt", Cut::kGpt2},
    {"olmo", Cut::kGpt2},
    {"smollm", Cut::kDigitsGpt2},
    {"starcoder", Cut::kDigitsGpt2},
    {"llama-bpe", Cut::kLlama3},
    {"llama-v3", Cut::kLlama3},
    {"llama3", Cut::kLlama3},
    {"qwen2", Cut::kQwen2},
    {"deepseek-r1-qwen", Cut::kQwen2},
    {"gpt-4o", Cut::kGpt4o},
};

const NamedCut* find_cut(std::string_view name) {
  const auto* found = std::ranges::find(kNamedCuts, name, &NamedCut::name);
  return found == std::end(kNamedCuts) ? nullptr : found;
}

Result<PreTokenizer> make_pre_tokenizer(Cut cut) {
  std::vector<PreTokenizer::Step> steps;
  ByteLevelStep bytes{.use_pattern = cut == Cut::kGpt2 || cut == Cut::kDigitsGpt2};
  if (cut == Cut::kDigitsGpt2) steps.emplace_back(DigitsStep{.individual = true});
  if (!bytes.use_pattern) {
    const std::string_view pattern = cut == Cut::kLlama3  ? kLlama3Pattern
                                     : cut == Cut::kQwen2 ? kQwen2Pattern
                                                          : kGpt4oPattern;
    NMC_ASSIGN_OR_RETURN(SplitStep split, make_split(pattern, SplitBehavior::kIsolated, false));
    steps.emplace_back(std::move(split));
  }
  steps.emplace_back(bytes);
  return PreTokenizer(std::move(steps));
}

Result<MergeRule> resolve_merge(const TokenizerFile& file, std::string_view merge) {
  const std::size_t space = merge.find(' ', 1);
  if (space == merge.npos) return corrupt("expected \"a b\", got {}", printable(std::string(merge)));
  const auto id_of = [&](const std::string& text) -> Result<TokenId> {
    const auto it = file.ids.find(text);
    if (it == file.ids.end()) return corrupt("{} is no token", printable(text));
    return it->second;
  };
  const std::string left(merge.substr(0, space));
  const std::string right(merge.substr(space + 1));
  MergeRule rule;
  NMC_ASSIGN_OR_RETURN(rule.left, id_of(left));
  NMC_ASSIGN_OR_RETURN(rule.right, id_of(right));
  NMC_ASSIGN_OR_RETURN(rule.joined, id_of(left + right));
  return rule;
}

}  // namespace

Result<std::unique_ptr<Tokenizer>> make_spm_tokenizer(TokenizerArrays arrays) {
  if (arrays.scores.size() != arrays.tokens.size()) {
    return corrupt("scores: expected as many as tokens, {}, got {}", arrays.tokens.size(), arrays.scores.size());
  }
  const std::string digest = digest_of(arrays, "spm");
  NMC_ASSIGN_OR_RETURN(const std::vector<std::uint32_t> ranks, rank_scores(arrays.scores));
  NMC_ASSIGN_OR_RETURN(TokenizerFile file, read_tokens(arrays));
  file.byte_fallback = true;
  file.fuse_unknown = true;
  NMC_RETURN_IF_ERROR(add_merges(arrays, ranks, file));
  add_spm_steps(arrays.add_space_prefix, file);
  return make(std::move(file), arrays, true, digest);
}

Result<std::unique_ptr<Tokenizer>> make_bpe_tokenizer(TokenizerArrays arrays) {
  const NamedCut* named = find_cut(arrays.pre_tokenizer);
  if (named == nullptr) {
    return unsupported("pre-tokenizer: expected gpt-2, llama-bpe, qwen2, smollm or another known name, got {}",
                       printable(arrays.pre_tokenizer));
  }
  const std::string digest = digest_of(arrays, "bpe");
  NMC_ASSIGN_OR_RETURN(TokenizerFile file, read_tokens(arrays));
  file.byte_level = true;
  file.decoder.byte_level = true;
  file.unknown_id.reset();
  file.ignore_merges = named->cut == Cut::kLlama3;
  if (named->cut == Cut::kQwen2) file.normalizer = Normalizer({UnicodeForm::kNfc});
  NMC_ASSIGN_OR_RETURN(file.pre_tokenizer, make_pre_tokenizer(named->cut));
  for (std::size_t i = 0; i < arrays.merges.size(); ++i) {
    Result<MergeRule> rule = resolve_merge(file, arrays.merges[i]);
    if (!rule) return Failure(std::move(rule).error().with_context(fmt::format("merges[{}]", i)));
    file.merges.push_back(*rule);
  }
  return make(std::move(file), arrays, false, digest);
}

bool is_known_pre_tokenizer(std::string_view name) { return find_cut(name) != nullptr; }

}  // namespace nmc::model
