#include "http/service_routes.h"

#include <nlohmann/json.hpp>

#include "base/version.h"
#include "http/metrics_json.h"
#include "http/prometheus_metrics.h"
#include "http/responses.h"

namespace nmc::http {

void answer_models(Call call) {
  const ServerState& state = *call.state;
  Json json;
  json["object"] = "list";
  json["data"] = Json::array();
  for (const std::string& name : state.served.models) {
    Json model;
    model["id"] = name;
    model["object"] = "model";
    model["created"] = state.created;
    model["owned_by"] = "nano-mooncake";
    const bool is_base = json["data"].empty();
    model["root"] = is_base ? state.model.name : name;
    model["parent"] = is_base ? Json(nullptr) : Json(state.served.models.front());
    model["max_model_len"] = state.context;
    model["permission"] = Json::array();
    json["data"].push_back(std::move(model));
  }
  call.exchange->respond(json_response(json));
}

void answer_healthz(Call call) {
  const bool draining = call.state->draining.load();
  Json json;
  json["status"] = draining ? "draining" : "ok";
  json["model"] = call.state->options.served_model_name;
  json["version"] = build_info().version;
  call.exchange->respond(json_response(json, draining ? 503 : 200));
}

void answer_health(Call call) { call.exchange->respond(empty_response(call.state->draining.load() ? 503 : 200)); }

void answer_version(Call call) {
  Json json;
  json["version"] = build_info().version;
  call.exchange->respond(json_response(json));
}

void answer_load(Call call) {
  const engine::RuntimeStatus status = call.state->runtime.status();
  Json json;
  json["server_load"] = status.queued + status.running;
  call.exchange->respond(json_response(json));
}

void answer_metrics_document(Call call) { call.exchange->respond(json_response(metrics_json(*call.state))); }

void answer_prometheus(Call call) {
  call.exchange->respond(
      {.content_type = "text/plain; version=0.0.4; charset=utf-8", .body = prometheus_text(*call.state)});
}

}  // namespace nmc::http
