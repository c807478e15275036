// A tokenizer.json, a zero byte, a tokenizer_config.json or nothing, a zero byte, a text. Whatever the files are, the
// parsers answer with an error or with a tokenizer that turns any text into ids of its own and never makes control
// tokens of it unless asked.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "base/json.h"
#include "model/bpe_tokenizer.h"

namespace {

using nmc::model::TokenId;

void check_ids(const nmc::model::Tokenizer& tokenizer, std::string_view text, bool parse_special) {
  const std::vector<TokenId> ids = tokenizer.encode(text, {.parse_special = parse_special, .add_bos = parse_special});
  for (const TokenId id : ids) {
    NMC_ASSERT(id < tokenizer.vocab_size());
    NMC_ASSERT(parse_special || !tokenizer.is_special(id));
  }
  for (const bool skip_special : {false, true}) NMC_ASSERT(nmc::is_valid_utf8(tokenizer.decode(ids, skip_special)));
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
  const auto tokenizer = nmc::model::BpeTokenizer::make(std::move(*file), *config, json);
  if (!tokenizer) return 0;
  check_ids(**tokenizer, rest, false);
  check_ids(**tokenizer, rest, true);
  return 0;
}
