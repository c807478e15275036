#include "http/openapi.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/version.h"
#include "http/json_schema.h"
#include "http/openapi_schemas.h"
#include "http/responses.h"

namespace nmc::http {
namespace {

void add_error(Json& responses, const char* status, const char* description) {
  if (responses.contains(status)) return;
  Json& response = responses[status];
  response["description"] = description;
  response["content"]["application/json"]["schema"] = schema::reference("Error");
}

// With what all routes of its kind may answer too.
Json operation_of(const Route& route, const ServerState& state) {
  Json operation = route.operation(state);
  Json& responses = operation["responses"];
  if (operation.contains("requestBody")) {
    add_error(responses, "400",
              "The body is not JSON, a field is wrong or asks for what isn't supported; it is named.");
    add_error(responses, "404", "The model isn't served here.");
    add_error(responses, "503",
              "The server is shutting down, has too much to read, or the request waited too long; Retry-After is set.");
  }
  if (route.method == "POST") {
    add_error(responses, "408", "The body didn't arrive in time.");
    add_error(responses, "413", "The body is too large.");
  }
  if (route.access == Access::kKey) add_error(responses, "401", "The API key is missing or wrong.");
  add_error(responses, "431", "The headers are too large.");
  add_error(responses, "500", "The server failed.");
  // Last: `responses` doesn't survive a new member beside it.
  if (route.access == Access::kKey && !state.options.api_key.empty()) {
    operation["security"] = Json::array({Json::object({{"apiKey", Json::array()}})});
  }
  return operation;
}

Json paths_json(const ServerState& state) {
  Json paths;
  for (const Route& route : all_routes()) {
    std::string method(route.method);
    std::ranges::transform(method, method.begin(), [](char c) { return static_cast<char>(c - 'A' + 'a'); });
    paths[std::string(route.path)][method] = operation_of(route, state);
  }
  return paths;
}

}  // namespace

Json openapi_json(const ServerState& state) {
  Json json;
  json["openapi"] = "3.1.0";
  json["info"]["title"] = "nano-mooncake";
  json["info"]["version"] = build_info().version;
  json["info"]["description"] =
      "The OpenAI API's completions over one model, with vLLM's further fields and endpoints. Members of a request "
      "that "
      "aren't described are ignored; null is as if absent.";
  json["paths"] = paths_json(state);
  json["components"]["schemas"] = schema_components(state);
  if (!state.options.api_key.empty()) {
    json["components"]["securitySchemes"]["apiKey"] = Json::object({{"type", "http"}, {"scheme", "bearer"}});
  }
  return json;
}

void answer_openapi(Call call) { call.exchange->respond(json_response(openapi_json(*call.state))); }

}  // namespace nmc::http
