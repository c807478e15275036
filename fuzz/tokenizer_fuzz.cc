// A tokenizer.json, then a zero byte, then a text. Whatever the file is, the parser answers with an error or with a
// tokenizer that turns any text into ids of its own and never makes control tokens of it unless asked.
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

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const std::size_t end = std::min(input.find('\0'), size);
  const std::string_view json = input.substr(0, end);
  auto file = nmc::model::parse_tokenizer_file(json, "input");
  if (!file) {
    const std::string& message = file.error().message;
    NMC_ASSERT(message.starts_with("input: ") && nmc::is_valid_utf8(message), "{}", message);
    return 0;
  }
  const auto tokenizer = nmc::model::BpeTokenizer::make(std::move(*file), {}, json);
  NMC_ASSERT(tokenizer, "{}", tokenizer.error().message);
  const std::string_view text = input.substr(std::min(end + 1, size));
  check_ids(**tokenizer, text, false);
  check_ids(**tokenizer, text, true);
  return 0;
}
