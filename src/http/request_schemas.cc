#include "http/request_schemas.h"

#include <limits>
#include <nlohmann/json.hpp>

#include "http/completion_request.h"
#include "http/engine_request.h"
#include "http/json_schema.h"
#include "http/unsupported_fields.h"

namespace nmc::http {
namespace {

using schema::Object;

Json token_id(const ServerState& state) { return schema::integer(0, state.model.config.vocab - 1); }

// Above `low`, unlike schema::number.
Json positive_number(double high) {
  Json json = schema::number(0, high);
  json.erase("minimum");
  json["exclusiveMinimum"] = 0;
  return json;
}

template <typename Value>
Json default_of(const std::optional<Value>& suggested, Value otherwise) {
  return suggested.value_or(otherwise);
}

void add_model(Object& object, const ServerState& state) {
  object.optional("model", schema::one_of(state.served.models), state.served.models.front(),
                  "A name that /v1/models lists; another one is answered 404.");
}

void add_conversation(Object& object) {
  object.required("messages", schema::list(schema::reference("ChatMessage"), 1));
  object.optional("tools", schema::list(schema::map(schema::anything())), nullptr,
                  "Given to the chat template, which has to be one that reads them.");
  object.optional("documents", schema::list(schema::map(schema::anything())), nullptr,
                  "Given to the chat template, which has to be one that reads them.");
  object.optional("add_generation_prompt", schema::boolean(), nullptr,
                  "Whether the prompt ends with the opening of the assistant's turn: true unless "
                  "`continue_final_message` is; never both.");
  object.optional("continue_final_message", schema::boolean(), false,
                  "Whether the prompt ends within the last message, so that the answer goes on with it.");
  object.optional("chat_template_kwargs", schema::map(schema::anything()), nullptr,
                  "Further variables of the chat template.");
}

void add_special_tokens(Object& object, bool absent) {
  object.optional("add_special_tokens", schema::boolean(), absent,
                  "Whether the start token is put in front of a text, where the tokenizer is one that does that.");
}

void add_sampling(Object& object, const ServerState& state) {
  const model::GenerationDefaults& defaults = state.served.defaults;
  object.optional("temperature", schema::number(0, 2), default_of(defaults.temperature, 1.0f),
                  "0: the likeliest token.");
  object.optional("top_p", positive_number(1), default_of(defaults.top_p, 1.0f));
  object.optional("top_k", schema::integer(-1, std::numeric_limits<std::uint32_t>::max()),
                  default_of(defaults.top_k, std::uint32_t{0}), "0 and -1: all.");
  object.optional("min_p", schema::number(0, 1), default_of(defaults.min_p, 0.0f),
                  "Tokens less likely than this share of the likeliest are left out.");
  object.optional("seed",
                  schema::integer(std::numeric_limits<std::int64_t>::min(), std::numeric_limits<std::int64_t>::max()),
                  nullptr, "Equal seeds give equal answers. Without one each answer is drawn anew.");
  object.optional("presence_penalty", schema::number(-2, 2), 0);
  object.optional("frequency_penalty", schema::number(-2, 2), 0);
  object.optional("repetition_penalty", positive_number(2), default_of(defaults.repetition_penalty, 1.0f));
  Json biases = schema::map(schema::number(-100, 100), kLogitBiasesMax);
  biases["propertyNames"] = Json::object({{"pattern", "^[0-9]+$"}});
  object.optional("logit_bias", std::move(biases), nullptr, "Token ids and what is added to their logits.");
  object.optional("allowed_token_ids", schema::list(token_id(state), 1, kAllowedIdsMax), nullptr,
                  "Nothing else is drawn.");
  Json word = schema::text(kBadWordBytesMax);
  word["minLength"] = 1;
  object.optional("bad_words", schema::list(std::move(word), 0, kBadWordsMax), nullptr,
                  "None of them is drawn whole, as its own tokens or those after a space.");
  object.optional("n", schema::integer(1, kChoicesMax), 1,
                  fmt::format("Answers to each prompt; prompts times n are at most {}.", kChoicesMax));
}

void add_endings(Object& object, const ServerState& state) {
  Json stop = schema::text(kStopBytesMax);
  stop["minLength"] = 1;
  object.optional("stop", schema::any_of({stop, schema::list(stop, 0, kStopsMax)}), nullptr,
                  "Strings that end the answer and aren't part of it.");
  object.optional("stop_token_ids", schema::list(token_id(state), 0, kStopIdsMax), nullptr,
                  "Tokens that end the answer.");
  object.optional("include_stop_str_in_output", schema::boolean(), false,
                  "Whether the stop string, or the token, that ended the answer is part of it.");
  object.optional("ignore_eos", schema::boolean(), false, "Whether the model's own end of text is passed over.");
  object.optional("min_tokens", schema::integer(0, std::numeric_limits<std::int64_t>::max()), 0,
                  "What would end the answer isn't drawn before; at most max_tokens.");
}

void add_streaming(Object& object) {
  object.optional("stream", schema::boolean(), false, "Whether the answer comes as server-sent events, one a token.");
  Object options;
  options.optional("include_usage", schema::boolean(), false, "Whether a last chunk without choices tells the usage.");
  options.optional("continuous_usage_stats", schema::boolean(), false,
                   "With include_usage: whether each chunk tells the usage so far.");
  object.optional("stream_options", options.open(), nullptr, "Only with stream.");
}

void add_logprobs(Object& object, Endpoint endpoint) {
  object.optional("prompt_logprobs", schema::integer(0, kTopLogprobsMax), nullptr,
                  "How many of the likeliest tokens are told beside each of the prompt, which is then computed whole, "
                  "whatever the cache has. Not with stream.");
  if (endpoint == Endpoint::kCompletions) {
    object.optional("logprobs", schema::integer(0, kTopLogprobsMax), nullptr,
                    "How many of the likeliest tokens are told beside each.");
    return;
  }
  object.optional("logprobs", schema::boolean(), false, "Whether each token's log probability is told.");
  object.optional("top_logprobs", schema::integer(0, kTopLogprobsMax), 0,
                  "How many of the likeliest tokens are told beside it; only with logprobs.");
}

Json prompt_schema(const ServerState& state) {
  const Json ids = schema::list(token_id(state), 1);
  return schema::any_of(
      {schema::text(), schema::list(schema::text(), 1, kPromptsMax), ids, schema::list(ids, 1, kPromptsMax)});
}

}  // namespace

Json chat_message_schema() {
  Object part;
  part.required("type", schema::constant("text"));
  part.required("text", schema::text());
  const Json parts = schema::list(part.open());
  Object function;
  function.required("name", schema::text());
  function.optional("arguments", schema::any_of({schema::text(), schema::map(schema::anything())}), nullptr,
                    "An object, or one as JSON in a string.");
  Object call;
  call.required("function", function.open());
  const auto add_names = [](Object& message) {
    message.optional("name", schema::text(), nullptr);
    message.optional("tool_call_id", schema::text(), nullptr);
  };
  Object said;
  said.required("role", schema::one_of({"system", "developer", "user", "assistant", "tool"}));
  said.required("content", schema::any_of({schema::text(), parts}));
  add_names(said);
  said.optional("tool_calls", schema::list(call.open()), nullptr);
  Object called;
  called.required("role", schema::constant("assistant"));
  called.required("tool_calls", schema::list(call.open(), 1));
  called.optional("content", schema::any_of({schema::text(), parts}), nullptr);
  add_names(called);
  return schema::any_of({said.open(), called.open()});
}

Json completion_request_schema(const ServerState& state, Endpoint endpoint) {
  const Json tokens = schema::integer(1, std::numeric_limits<std::uint64_t>::max());
  Object object;
  add_model(object, state);
  if (endpoint == Endpoint::kChat) {
    add_conversation(object);
    object.optional("max_tokens", tokens, nullptr, "Tokens of an answer at most. Default, and limit: what fits.");
    object.optional("max_completion_tokens", tokens, nullptr, "The same; where both are given this one holds.");
  } else {
    object.required("prompt", prompt_schema(state), "A text or token ids, or several of one kind.");
    object.optional("max_tokens", tokens, kDefaultMaxTokens, "Tokens of an answer at most; cut to what fits.");
    object.optional("echo", schema::boolean(), false, "Whether the prompt goes ahead of the answer, in logprobs, too.");
  }
  add_special_tokens(object, endpoint == Endpoint::kCompletions);
  Json kept = schema::integer(kToWhatFits, std::numeric_limits<std::int64_t>::max());
  kept["not"] = schema::constant(0);
  object.optional("truncate_prompt_tokens", std::move(kept), nullptr,
                  "So many of the prompt's last tokens are kept; -1: as many as leave room for max_tokens.");
  add_sampling(object, state);
  add_endings(object, state);
  add_logprobs(object, endpoint);
  add_streaming(object);
  object.optional("skip_special_tokens", schema::boolean(), true, "Whether control tokens are left out of the text.");
  object.optional("return_token_ids", schema::boolean(), false, "Whether the ids of prompt and answer are told.");
  Json id = schema::text(kRequestIdBytesMax);
  id["pattern"] = "^[!-~]+$";
  object.optional("request_id", std::move(id), nullptr,
                  "The answer's id, and its header X-Request-Id; such a header of the request wins. Default: drawn.");
  object.optional("cache_salt", schema::text(kCacheSaltBytesMax), "",
                  "KV is shared only between requests of equal salts.");
  add_unsupported_fields(object, endpoint);
  return object.open();
}

Json tokenize_request_schema(const ServerState& state) {
  const auto add_common = [&state](Object& object) {
    add_model(object, state);
    object.optional("return_token_strs", schema::boolean(), false, "Whether each token's text is told.");
  };
  Object text;
  text.required("prompt", schema::text());
  add_common(text);
  add_special_tokens(text, true);
  text.optional("messages", schema::constant(nullptr), nullptr);
  Object chat;
  add_conversation(chat);
  add_common(chat);
  chat.optional("prompt", schema::constant(nullptr), nullptr);
  add_special_tokens(chat, false);
  add_unsupported_conversation_fields(chat);
  return schema::any_of({text.open(), chat.open()});
}

Json detokenize_request_schema(const ServerState& state) {
  Object object;
  add_model(object, state);
  object.required("tokens", schema::list(token_id(state)));
  return object.open();
}

}  // namespace nmc::http
