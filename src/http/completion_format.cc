#include "http/completion_format.h"

namespace nmc::http {
namespace {

void add_ending(Json& choice, const Ending* ending) {
  choice["finish_reason"] = ending == nullptr ? Json(nullptr) : Json(ending->reason);
  choice["stop_reason"] = ending == nullptr ? Json(nullptr) : ending->stop_reason;
}

void add_prompt(Json& there, const FinishedChoice& choice) {
  if (choice.prompt_token_ids) there["prompt_token_ids"] = *choice.prompt_token_ids;
  if (choice.prompt_logprobs) there["prompt_logprobs"] = *choice.prompt_logprobs;
}

}  // namespace

Usage& Usage::operator+=(const Usage& other) {
  prompt_tokens += other.prompt_tokens;
  completion_tokens += other.completion_tokens;
  cached_tokens += other.cached_tokens;
  return *this;
}

std::string sse_event(const Json& data) { return fmt::format("data: {}\n\n", dump_json(data)); }

CompletionFormat::CompletionFormat(Endpoint endpoint, std::string id, std::int64_t created, std::string model)
    : endpoint_(endpoint), id_(std::move(id)), created_(created), model_(std::move(model)) {}

Json CompletionFormat::envelope(const char* chat_object, const char* completions_object) const {
  Json json;
  json["id"] = id_;
  json["object"] = endpoint_ == Endpoint::kChat ? chat_object : completions_object;
  json["created"] = created_;
  json["model"] = model_;
  json["choices"] = Json::array();
  return json;
}

Json CompletionFormat::usage_json(const Usage& usage) {
  Json json;
  json["prompt_tokens"] = usage.prompt_tokens;
  json["completion_tokens"] = usage.completion_tokens;
  json["total_tokens"] = usage.prompt_tokens + usage.completion_tokens;
  json["prompt_tokens_details"] = Json::object({{"cached_tokens", usage.cached_tokens}});
  return json;
}

std::string CompletionFormat::whole(std::span<const FinishedChoice> choices, const Usage& usage) const {
  const bool chat = endpoint_ == Endpoint::kChat;
  Json json = envelope("chat.completion", "text_completion");
  for (std::size_t i = 0; i < choices.size(); ++i) {
    Json choice;
    choice["index"] = i;
    if (chat) {
      choice["message"] = Json::object({{"role", "assistant"}, {"content", choices[i].text}});
    } else {
      choice["text"] = choices[i].text;
    }
    choice["logprobs"] = choices[i].logprobs;
    add_ending(choice, &choices[i].ending);
    if (choices[i].token_ids) choice["token_ids"] = *choices[i].token_ids;
    if (!chat) add_prompt(choice, choices[i]);
    json["choices"].push_back(std::move(choice));
  }
  if (chat) add_prompt(json, choices.front());  // it has one prompt
  json["usage"] = usage_json(usage);
  return dump_json(json);
}

std::string CompletionFormat::event(Json choice, ChunkedChoice chunk) const {
  Json json = envelope("chat.completion.chunk", "text_completion");
  if (chunk.prompt_token_ids) {
    Json& there = endpoint_ == Endpoint::kChat ? json : choice;
    there["prompt_token_ids"] = *std::move(chunk.prompt_token_ids);
  }
  json["choices"].push_back(std::move(choice));
  if (chunk.usage != nullptr) json["usage"] = *chunk.usage;
  return sse_event(json);
}

std::string CompletionFormat::role_event(ChunkedChoice chunk) const {
  Json choice;
  choice["index"] = chunk.index;
  choice["delta"] = Json::object({{"role", "assistant"}, {"content", ""}});
  choice["logprobs"] = nullptr;
  add_ending(choice, nullptr);
  return event(std::move(choice), std::move(chunk));
}

std::string CompletionFormat::text_event(ChunkedChoice chunk) const {
  Json choice;
  choice["index"] = chunk.index;
  if (endpoint_ == Endpoint::kChat) {
    choice["delta"] = Json::object({{"content", chunk.text}});
  } else {
    choice["text"] = chunk.text;
  }
  choice["logprobs"] = std::move(chunk.logprobs);
  add_ending(choice, chunk.ending);
  if (chunk.token_ids) choice["token_ids"] = *std::move(chunk.token_ids);
  return event(std::move(choice), std::move(chunk));
}

std::string CompletionFormat::usage_event(const Usage& usage) const {
  Json json = envelope("chat.completion.chunk", "text_completion");
  json["usage"] = usage_json(usage);
  return sse_event(json);
}

}  // namespace nmc::http
