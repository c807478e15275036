#include "http/engine_request.h"

#include <algorithm>

#include "base/rng.h"

namespace nmc::http {
namespace {

using engine::TokenId;

ApiResult<std::vector<TokenId>> prompt_ids(const Prompt& prompt, const model::Model& model) {
  if (const auto* text = std::get_if<std::string>(&prompt)) {
    return model.tokenizer->encode(*text, {.parse_special = true, .add_bos = model.tokenizer->adds_bos()});
  }
  const auto& ids = std::get<std::vector<TokenId>>(prompt);
  for (const TokenId id : ids) {
    if (id >= model.config.vocab) {
      return bad_field("prompt", fmt::format("token id {} is not in the vocabulary of {}", id, model.config.vocab));
    }
  }
  return ids;
}

ApiResult<std::vector<TokenId>> chat_ids(const CompletionRequest& request, const model::Model& model) {
  auto ids = model.chat_template->render(*model.tokenizer, request.messages);
  if (!ids) return ApiFailure(to_api_error(std::move(ids).error(), "messages"));
  return std::move(*ids);
}

// The seed as the client gave it for the first prompt, so that a prompt's answer doesn't depend on how it was sent.
std::uint64_t seed_of(const CompletionRequest& request, std::uint64_t random_seed, std::size_t index) {
  return request.seed ? *request.seed : keyed_random(random_seed, 0, index);
}

}  // namespace

ApiResult<std::vector<engine::GenerateRequest>> make_engine_requests(const CompletionRequest& request,
                                                                     const std::string& id, const model::Model& model,
                                                                     const EngineLimits& limits,
                                                                     std::uint64_t random_seed) {
  const bool chat = request.endpoint == Endpoint::kChat;
  const char* field = chat ? "messages" : "prompt";
  std::vector<engine::GenerateRequest> made;
  for (std::size_t i = 0; i < (chat ? 1 : request.prompts.size()); ++i) {
    auto ids = chat ? chat_ids(request, model) : prompt_ids(request.prompts[i], model);
    if (!ids) return ApiFailure(std::move(ids).error());
    if (ids->empty()) return bad_field(field, "expected at least one token, got an empty prompt");
    if (ids->size() >= limits.context) {
      return bad_field(field,
                       fmt::format("the prompt has {} tokens and the context holds {}, of which the answer needs at "
                                   "least one",
                                   ids->size(), limits.context));
    }
    const std::size_t room = limits.context - ids->size();
    engine::GenerateRequest& one = made.emplace_back();
    one.id = fmt::format("{}-{}", id, i);
    one.prompt = std::move(*ids);
    one.sampling = {.temperature = request.temperature,
                    .top_p = request.top_p,
                    .top_k = request.top_k,
                    .seed = seed_of(request, random_seed, i)};
    one.max_tokens = std::min(request.max_tokens.value_or(chat ? room : kDefaultMaxTokens), room);
    one.ignore_eos = request.ignore_eos;
    one.cache_salt = request.cache_salt;
    one.deadline = limits.deadline;
  }
  return made;
}

}  // namespace nmc::http
