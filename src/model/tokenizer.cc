#include "model/tokenizer.h"

#include "model/bpe_tokenizer.h"
#include "model/detokenizer.h"

namespace nmc::model {

std::optional<std::string> Tokenizer::first_token_text(TokenId id) const {
  const std::string_view text = token_text(id);
  return text.empty() ? std::nullopt : std::optional<std::string>(text);
}

std::string Tokenizer::decode(std::span<const TokenId> ids, bool skip_special) const {
  Detokenizer detokenizer(*this, skip_special);
  std::string text;
  for (const TokenId id : ids) text += detokenizer.push(id);
  return text + detokenizer.flush();
}

Result<std::unique_ptr<Tokenizer>> load_tokenizer(const Path& folder) {
  NMC_ASSIGN_OR_RETURN(std::unique_ptr<BpeTokenizer> tokenizer, BpeTokenizer::load(folder));
  return std::unique_ptr<Tokenizer>(std::move(tokenizer));
}

}  // namespace nmc::model
