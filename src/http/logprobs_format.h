// Logprobs as the OpenAI API shows them, which differs between its two endpoints.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "engine/request.h"
#include "model/tokenizer.h"

namespace nmc::http {

std::size_t characters(std::string_view utf8);

// The token's text, with U+FFFD where its bytes alone form no character.
std::string token_string(const model::Tokenizer& tokenizer, engine::TokenId id);

// {"content": [{"token", "logprob", "bytes", "top_logprobs": [...]}], "refusal": null}. "token" is the
// token_string(), "bytes" are all of its bytes.
Json chat_logprobs(const model::Tokenizer& tokenizer, std::span<const engine::SampledToken> tokens);

// {"text_offset", "token_logprobs", "tokens", "top_logprobs"}: four arrays of equal length. `offset` counts the
// characters of the tokens before and is moved on. A token without logprobs, as a prompt's first, has null for them.
Json completions_logprobs(const model::Tokenizer& tokenizer, std::span<const engine::SampledToken> tokens,
                          std::size_t& offset);

// A prompt's tokens as if they had been said, with the `count` likeliest beside each; `told` are those from the second
// on.
std::vector<engine::SampledToken> echoed_tokens(std::span<const engine::TokenId> prompt,
                                                std::span<const engine::PromptToken> told, std::size_t count);

// An entry for each token of a prompt: null for the first, then the token's id and those of the `count` likeliest, each
// with {"logprob", "rank", "decoded_token"}.
Json prompt_logprobs(const model::Tokenizer& tokenizer, std::span<const engine::PromptToken> told, std::size_t count);

}  // namespace nmc::http
