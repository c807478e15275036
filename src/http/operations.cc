#include "http/operations.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "http/json_schema.h"

namespace nmc::http {
namespace {

Json operation(const char* id, const char* summary) {
  Json json;
  json["operationId"] = id;
  json["summary"] = summary;
  json["responses"] = Json::object();
  return json;
}

void add_body(Json& operation, const char* component) {
  Json body;
  body["required"] = true;
  body["content"]["application/json"]["schema"] = schema::reference(component);
  operation["requestBody"] = std::move(body);
}

Json& add_response(Json& operation, const char* status, const char* description) {
  Json& response = operation["responses"][status];
  response["description"] = description;
  return response;
}

void add_json(Json& operation, const char* status, const char* description, const char* component) {
  add_response(operation, status, description)["content"]["application/json"]["schema"] = schema::reference(component);
}

Json simple(const char* id, const char* summary, const char* description, const char* component) {
  Json json = operation(id, summary);
  add_json(json, "200", description, component);
  return json;
}

Json completion(const char* id, const char* summary, const char* request, const char* answer, const char* chunk) {
  Json json = operation(id, summary);
  add_body(json, request);
  Json& done = add_response(json, "200", "The answer, whole or, with `stream`, as it comes.");
  done["content"]["application/json"]["schema"] = schema::reference(answer);
  Json event = schema::text();
  event["description"] = fmt::format(
      "Events `data: JSON`, each a {}, then `data: [DONE]`; one that holds an Error ends the stream before its time. "
      "Lines that begin with a colon are comments.",
      chunk);
  done["content"]["text/event-stream"]["schema"] = std::move(event);
  add_json(json, "429", "The queue is full; Retry-After says when to come back.", "Error");
  add_json(json, "504", "The request's deadline passed.", "Error");
  return json;
}

Json probe(const char* id, const char* summary) {
  Json json = operation(id, summary);
  add_response(json, "200", "The server takes requests.");
  return json;
}

}  // namespace

Json chat_completions_operation(const ServerState&) {
  return completion("createChatCompletion", "Goes on with a conversation.", "ChatCompletionRequest", "ChatCompletion",
                    "ChatCompletionChunk");
}
Json completions_operation(const ServerState&) {
  return completion("createCompletion", "Goes on with a text.", "CompletionRequest", "Completion", "CompletionChunk");
}
Json models_operation(const ServerState&) {
  return simple("listModels", "The models that are served.", "The model, then its adapters.", "ModelList");
}
Json tokenize_operation(const ServerState&) {
  Json json = simple("tokenize", "The token ids of a text or a conversation.", "The ids.", "Tokens");
  add_body(json, "TokenizeRequest");
  return json;
}
Json detokenize_operation(const ServerState&) {
  Json json = simple("detokenize", "The text of token ids, control tokens included.", "The text.", "DetokenizedText");
  add_body(json, "DetokenizeRequest");
  return json;
}
Json metrics_document_operation(const ServerState&) {
  return simple("getMetrics", "Counters, gauges and percentiles.", "As of now.", "Metrics");
}
Json prometheus_operation(const ServerState&) {
  Json json = operation("getPrometheusMetrics", "The same for Prometheus.");
  add_response(json, "200", "Text exposition, version 0.0.4.")["content"]["text/plain"]["schema"] = schema::text();
  return json;
}
Json page_operation(const ServerState&) {
  Json json = operation("getPage", "A page that shows the metrics as they change, and chats.");
  add_response(json, "200", "One document; it asks nobody but this server.")["content"]["text/html"]["schema"] =
      schema::text();
  return json;
}
Json load_operation(const ServerState&) {
  return simple("getLoad", "How many requests the server has.", "As of now.", "Load");
}
Json healthz_operation(const ServerState&) {
  Json json = simple("getHealth", "Whether the server takes requests.", "It does.", "Health");
  add_json(json, "503", "It is shutting down.", "Health");
  return json;
}
Json health_operation(const ServerState&) {
  Json json = probe("checkHealth", "The same by the status alone.");
  add_response(json, "503", "It is shutting down.");
  return json;
}
Json ping_operation(const ServerState& state) {
  Json json = health_operation(state);
  json.erase("operationId");  // two methods share it
  return json;
}
Json version_operation(const ServerState&) {
  return simple("getVersion", "The server's version.", "The version.", "Version");
}
Json openapi_operation(const ServerState&) {
  Json json = operation("getOpenApi", "This document.");
  add_response(json, "200", "OpenAPI 3.1.")["content"]["application/json"]["schema"] = schema::map(schema::anything());
  return json;
}

}  // namespace nmc::http
