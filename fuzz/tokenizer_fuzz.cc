// A tokenizer.json, a zero byte, a tokenizer_config.json or nothing, a zero byte, a text. Whatever the files are, the
// parsers answer with an error or with a tokenizer that turns any text into ids of its own, never makes control tokens
// of it unless asked, and decodes the ids to the same text whole and as they come.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "base/check.h"
#include "base/json.h"
#include "model/bpe_tokenizer.h"
#include "model/detokenizer.h"

namespace {

using nmc::model::TokenId;

// `unknown` may be a control token: it stands for what has no token.
void check_ids(const nmc::model::Tokenizer& tokenizer, std::string_view text, bool parse_special,
               std::optional<TokenId> unknown) {
  const std::vector<TokenId> ids = tokenizer.encode(text, {.parse_special = parse_special, .add_bos = parse_special});
  for (const TokenId id : ids) {
    NMC_ASSERT(id < tokenizer.vocab_size());
    NMC_ASSERT(parse_special || id == unknown || !tokenizer.is_special(id));
  }
  for (const bool skip_special : {false, true}) {
    const std::string whole = tokenizer.decode(ids, skip_special);
    NMC_ASSERT(nmc::is_valid_utf8(whole));
    nmc::model::Detokenizer detokenizer(tokenizer, skip_special);
    std::string joined;
    for (const TokenId id : ids) {
      const std::string piece = detokenizer.push(id);
      NMC_ASSERT(nmc::is_valid_utf8(piece));
      joined += piece;
    }
    NMC_ASSERT(joined + detokenizer.flush() == whole);
  }
}

// Cut in two, of which neither or both may spell control tokens, a text has the ids of the whole if no control token
// lies across the cut; and where only the first may, the second makes none.
void check_parts(const nmc::model::Tokenizer& tokenizer, std::string_view text, std::optional<TokenId> unknown) {
  const std::string_view first = text.substr(0, text.size() / 2);
  const std::string_view second = text.substr(first.size());
  using Parts = std::array<nmc::model::TextPart, 2>;
  NMC_ASSERT(tokenizer.encode_parts(Parts{{{first, false}, {"", false}}}) == tokenizer.encode(first));
  for (const TokenId id : tokenizer.encode_parts(Parts{{{first, false}, {second, false}}})) {
    NMC_ASSERT(id == unknown || !tokenizer.is_special(id));
  }
  const auto count = [&](const std::vector<TokenId>& ids) {
    return std::ranges::count_if(ids, [&](TokenId id) { return id != unknown && tokenizer.is_special(id); });
  };
  NMC_ASSERT(count(tokenizer.encode_parts(Parts{{{first, true}, {second, false}}})) <=
             count(tokenizer.encode(first, {.parse_special = true})));
}

// What comes before the next zero byte, which is taken too.
std::string_view take_part(std::string_view& rest) {
  const std::string_view part = rest.substr(0, rest.find('\0'));
  rest.remove_prefix(std::min(part.size() + 1, rest.size()));
  return part;
}

int check_error(const nmc::Error& error) {
  NMC_ASSERT(error.message.starts_with("input: ") && nmc::is_valid_utf8(error.message), "{}", error.message);
  return 0;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::string_view rest(reinterpret_cast<const char*>(data), size);
  const std::string_view json = take_part(rest);
  const std::string_view config_json = take_part(rest);
  auto file = nmc::model::parse_tokenizer_file(json, "input");
  if (!file) return check_error(file.error());
  const auto config = nmc::model::parse_tokenizer_config(config_json.empty() ? "{}" : config_json, "input");
  if (!config) return check_error(config.error());
  const std::optional<TokenId> unknown = file->unknown_id;
  const auto tokenizer = nmc::model::BpeTokenizer::make(std::move(*file), *config, json);
  if (!tokenizer) return 0;
  check_ids(**tokenizer, rest, false, unknown);
  check_ids(**tokenizer, rest, true, unknown);
  check_parts(**tokenizer, rest, unknown);
  return 0;
}
