#include "http/logprobs_format.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>

#include "model/detokenizer.h"

namespace nmc::http {
namespace {

using engine::Logprob;
using engine::SampledToken;

// JSON has no infinity: an id that can't be is given a probability too small for any difference.
float shown(float logprob) { return std::max(logprob, -9999.0f); }

Json chat_entry(const model::Tokenizer& tokenizer, const Logprob& logprob) {
  Json bytes = Json::array();
  for (const char byte : tokenizer.token_text(logprob.id)) bytes.push_back(static_cast<unsigned char>(byte));
  Json entry;
  entry["token"] = token_string(tokenizer, logprob.id);
  entry["logprob"] = shown(logprob.logprob);
  entry["bytes"] = std::move(bytes);
  return entry;
}

}  // namespace

std::size_t characters(std::string_view utf8) {
  return static_cast<std::size_t>(
      std::ranges::count_if(utf8, [](char byte) { return (static_cast<unsigned char>(byte) & 0xC0) != 0x80; }));
}

std::string token_string(const model::Tokenizer& tokenizer, engine::TokenId id) {
  model::Utf8Stream stream;
  std::string text = stream.push(tokenizer.token_text(id));
  return text + stream.flush();
}

Json chat_logprobs(const model::Tokenizer& tokenizer, std::span<const SampledToken> tokens) {
  Json content = Json::array();
  for (const SampledToken& token : tokens) {
    Json entry = chat_entry(tokenizer, token.logprobs.front());
    entry["top_logprobs"] = Json::array();
    for (const Logprob& top : std::span(token.logprobs).subspan(1)) {
      entry["top_logprobs"].push_back(chat_entry(tokenizer, top));
    }
    content.push_back(std::move(entry));
  }
  Json json;
  json["content"] = std::move(content);
  json["refusal"] = nullptr;
  return json;
}

Json completions_logprobs(const model::Tokenizer& tokenizer, std::span<const SampledToken> tokens,
                          std::size_t& offset) {
  Json json;
  for (const char* name : {"text_offset", "token_logprobs", "tokens", "top_logprobs"}) json[name] = Json::array();
  for (const SampledToken& token : tokens) {
    const std::string text = token_string(tokenizer, token.id);
    json["text_offset"].push_back(offset);
    json["tokens"].push_back(text);
    offset += characters(text);
    if (token.logprobs.empty()) {
      json["token_logprobs"].push_back(nullptr);
      json["top_logprobs"].push_back(nullptr);
      continue;
    }
    json["token_logprobs"].push_back(shown(token.logprobs.front().logprob));
    Json top = Json::object();
    // The chosen one among them, as everywhere; of two ids of the same text the likelier is told.
    for (const Logprob& one : std::span(token.logprobs).subspan(1)) {
      top.emplace(token_string(tokenizer, one.id), shown(one.logprob));
    }
    top.emplace(text, shown(token.logprobs.front().logprob));
    json["top_logprobs"].push_back(std::move(top));
  }
  return json;
}

std::vector<SampledToken> echoed_tokens(std::span<const engine::TokenId> prompt,
                                        std::span<const engine::PromptToken> told, std::size_t count) {
  std::vector<SampledToken> tokens = {{prompt.front(), {}}};
  for (const engine::PromptToken& token : told) {
    SampledToken& echoed = tokens.emplace_back(SampledToken{prompt[token.position], token.logprobs});
    if (echoed.logprobs.size() > count + 1) echoed.logprobs.resize(count + 1);
  }
  return tokens;
}

Json prompt_logprobs(const model::Tokenizer& tokenizer, std::span<const engine::PromptToken> told, std::size_t count) {
  Json entries = Json::array({nullptr});
  for (const engine::PromptToken& token : told) {
    Json entry = Json::object();
    for (std::size_t i = 0; i < std::min(token.logprobs.size(), count + 1); ++i) {
      const Logprob& one = token.logprobs[i];
      // The first is the prompt's own; after it they come by rank, and it again where it is among them.
      const std::size_t rank = i == 0 ? token.rank : i;
      entry.emplace(std::to_string(one.id), Json::object({{"logprob", shown(one.logprob)},
                                                          {"rank", rank},
                                                          {"decoded_token", token_string(tokenizer, one.id)}}));
    }
    entries.push_back(std::move(entry));
  }
  return entries;
}

}  // namespace nmc::http
