#include "http/openapi_schemas.h"

#include <nlohmann/json.hpp>

#include "http/json_schema.h"
#include "http/request_schemas.h"

namespace nmc::http {
namespace {

using schema::Object;

Json count() { return schema::integer(0); }

// A member that is always there and may be null, which `optional` doesn't say.
Json nullable(Json schema) { return schema::or_null(std::move(schema)); }

Json error_schema() {
  Object error;
  error.required("message", schema::text());
  error.required("type", schema::text(), "BadRequestError, NotFoundError, RateLimitError, ...");
  error.required("param", nullable(schema::text()), "The request's field that is wrong.");
  error.required("code", schema::integer(400, 599), "The status.");
  return Object().required("error", error.closed()).closed();
}

Json usage_schema() {
  Object usage;
  usage.required("prompt_tokens", count());
  usage.required("completion_tokens", count());
  usage.required("total_tokens", count());
  usage.required("prompt_tokens_details",
                 Object().required("cached_tokens", count(), "Of the prompt: not computed.").closed());
  return usage.closed();
}

Json chat_logprobs_schema() {
  Object entry;
  entry.required("token", schema::text());
  entry.required("logprob", schema::number(-9999, 0));
  entry.required("bytes", schema::list(schema::integer(0, 255)));
  Object full = entry;
  full.required("top_logprobs", schema::list(entry.closed()));
  Object logprobs;
  logprobs.required("content", schema::list(full.closed()));
  logprobs.required("refusal", schema::constant(nullptr));
  return logprobs.closed();
}

Json completion_logprobs_schema() {
  Object logprobs;
  logprobs.required("text_offset", schema::list(count()));
  logprobs.required("token_logprobs", schema::list(nullable(schema::number(-9999, 0))),
                    "null for the first of an echoed prompt.");
  logprobs.required("tokens", schema::list(schema::text()));
  logprobs.required("top_logprobs", schema::list(nullable(schema::map(schema::number(-9999, 0)))));
  return logprobs.closed();
}

// What chunks and whole answers say of how an answer ended.
void add_ending(Object& choice, bool may_go_on) {
  const Json reason = schema::one_of({"stop", "length"});
  choice.required("finish_reason", may_go_on ? nullable(reason) : reason);
  choice.required("stop_reason", nullable(schema::any_of({schema::text(), schema::integer(0)})),
                  "The stop string or the id of stop_token_ids that ended it.");
}

void add_ids(Object& object, const char* name) {
  object.optional(name, schema::list(count()), nullptr, "With return_token_ids.");
}

void add_prompt_logprobs(Object& object) {
  Object entry;
  entry.required("logprob", schema::number(-9999, 0));
  entry.required("rank", schema::integer(1));
  entry.required("decoded_token", schema::text());
  object.optional("prompt_logprobs", schema::list(nullable(schema::map(entry.closed()))), nullptr,
                  "With the field of that name: for each token of the prompt but the first its id and the likeliest.");
}

Json answer_schema(const char* object, Json choice, Json usage, bool usage_is_required) {
  Object answer;
  answer.required("id", schema::text());
  answer.required("object", schema::constant(object));
  answer.required("created", schema::integer(0), "Unix time in seconds.");
  answer.required("model", schema::text());
  answer.required("choices", schema::list(std::move(choice)));
  if (std::string_view(object).starts_with("chat")) add_ids(answer, "prompt_token_ids");
  if (std::string_view(object) == "chat.completion") add_prompt_logprobs(answer);
  if (usage_is_required) {
    answer.required("usage", std::move(usage));
  } else {
    answer.optional("usage", std::move(usage), nullptr, "As stream_options asks for it.");
  }
  return answer.closed();
}

Json chat_completion_schema() {
  Object message;
  message.required("role", schema::constant("assistant"));
  message.required("content", schema::text());
  Object choice;
  choice.required("index", count());
  choice.required("message", message.closed());
  choice.required("logprobs", nullable(schema::reference("ChatLogprobs")));
  add_ending(choice, false);
  add_ids(choice, "token_ids");
  return answer_schema("chat.completion", choice.closed(), schema::reference("Usage"), true);
}

Json chat_chunk_schema() {
  Object delta;
  delta.optional("role", schema::constant("assistant"), nullptr, "Of the first chunk of a choice.");
  delta.required("content", schema::text());
  Object choice;
  choice.required("index", count());
  choice.required("delta", delta.closed());
  choice.required("logprobs", nullable(schema::reference("ChatLogprobs")));
  add_ending(choice, true);
  add_ids(choice, "token_ids");
  return answer_schema("chat.completion.chunk", choice.closed(), schema::reference("Usage"), false);
}

Json completion_schema(bool chunk) {
  Object choice;
  choice.required("index", count());
  choice.required("text", schema::text());
  choice.required("logprobs", nullable(schema::reference("CompletionLogprobs")));
  add_ending(choice, chunk);
  add_ids(choice, "token_ids");
  add_ids(choice, "prompt_token_ids");
  if (!chunk) add_prompt_logprobs(choice);
  return answer_schema("text_completion", choice.closed(), schema::reference("Usage"), !chunk);
}

Json model_list_schema() {
  Object model;
  model.required("id", schema::text());
  model.required("object", schema::constant("model"));
  model.required("created", schema::integer(0));
  model.required("owned_by", schema::text());
  model.required("root", schema::text());
  model.required("parent", nullable(schema::text()), "Of an adapter: the model that it changes.");
  model.required("max_model_len", schema::integer(1), "Tokens of a prompt and its answer together.");
  model.required("permission", schema::list(schema::anything()));
  Object list;
  list.required("object", schema::constant("list"));
  list.required("data", schema::list(model.closed(), 1), "The first is the one that is meant where none is named.");
  return list.closed();
}

Json tokens_schema() {
  Object tokens;
  tokens.required("count", count());
  tokens.required("max_model_len", schema::integer(1));
  tokens.required("tokens", schema::list(count()));
  tokens.required("token_strs", nullable(schema::list(schema::text())));
  return tokens.closed();
}

// Open: figures are added.
Json metrics_schema() {
  const Json object = schema::map(schema::anything());
  const Json object_or_not = schema::any_of({object, schema::constant("not_available")});
  Object metrics;
  metrics.required("schema", schema::constant("nano-mooncake/metrics/v1"));
  for (const char* name : {"model", "mode", "reuse", "transfer"}) metrics.required(name, schema::text());
  metrics.required("provenance", nullable(object), "Where this server's figures come from.");
  for (const char* name : {"queue", "requests", "latency", "counters"}) metrics.required(name, object);
  for (const char* name : {"pool", "tiers"}) metrics.required(name, object_or_not);
  metrics.required("workers", schema::list(object));
  metrics.required("handovers", schema::list(object), "The last ones, newest first.");
  return metrics.open();
}

Json health_schema() {
  Object health;
  health.required("status", schema::one_of({"ok", "draining"}));
  health.required("model", schema::text());
  health.required("version", schema::text());
  return health.closed();
}

}  // namespace

Json schema_components(const ServerState& state) {
  Json components;
  components["ChatCompletionRequest"] = completion_request_schema(state, Endpoint::kChat);
  components["ChatMessage"] = chat_message_schema();
  components["CompletionRequest"] = completion_request_schema(state, Endpoint::kCompletions);
  components["TokenizeRequest"] = tokenize_request_schema(state);
  components["DetokenizeRequest"] = detokenize_request_schema(state);
  components["ChatCompletion"] = chat_completion_schema();
  components["ChatCompletionChunk"] = chat_chunk_schema();
  components["ChatLogprobs"] = chat_logprobs_schema();
  components["Completion"] = completion_schema(false);
  components["CompletionChunk"] = completion_schema(true);
  components["CompletionLogprobs"] = completion_logprobs_schema();
  components["Usage"] = usage_schema();
  components["Tokens"] = tokens_schema();
  components["DetokenizedText"] = Object().required("prompt", schema::text()).closed();
  components["ModelList"] = model_list_schema();
  components["Metrics"] = metrics_schema();
  components["Health"] = health_schema();
  components["Version"] = Object().required("version", schema::text()).closed();
  components["Load"] = Object().required("server_load", count(), "Requests that are computed or wait.").closed();
  components["Error"] = error_schema();
  return components;
}

}  // namespace nmc::http
