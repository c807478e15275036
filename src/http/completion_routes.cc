#include "http/completion_routes.h"

#include <utility>

#include "http/completion.h"
#include "http/completion_request.h"
#include "http/engine_request.h"
#include "http/responses.h"
#include "http/status.h"

namespace nmc::http {
namespace {

// On an I/O thread or, for a large body, on the task thread.
void begin(const std::shared_ptr<ServerState>& state, const std::string& body, Endpoint endpoint,
           const Exchange& exchange) {
  EngineLimits limits{.context = state->context, .deadline = std::nullopt};
  if (state->options.request_timeout > Nanos{0})
    limits.deadline = state->clock().now() + state->options.request_timeout;
  auto request = parse_completion_request(body, endpoint, state->served);
  if (!request) return exchange->respond(error_response(request.error()));
  const std::string id =
      fmt::format("{}-{:016x}{:016x}", endpoint == Endpoint::kChat ? "chatcmpl" : "cmpl", state->draw(), state->draw());
  auto made = make_engine_requests(*request, id, state->model, limits, state->draw());
  if (!made) return exchange->respond(error_response(made.error()));
  for (engine::GenerateRequest& one : *made) one.adapter = state->adapter_of(request->model);
  CompletionFormat format(endpoint, id, state->clock().unix_seconds(), state->served.models[request->model]);
  exchange->post(
      [state, exchange, format = std::move(format), request = std::move(*request), made = std::move(*made)]() mutable {
        start_completion(state, request, std::move(made), std::move(format), exchange);
      });
}

void accept(Call call, Endpoint endpoint) {
  if (call.state->draining.load()) {
    return call.exchange->respond(error_response({503, "the server is shutting down and takes no more requests", ""}));
  }
  with_json_body(std::move(call), [endpoint](const auto& state, const std::string& body, const Exchange& exchange) {
    begin(state, body, endpoint, exchange);
  });
}

}  // namespace

void answer_chat_completions(Call call) { accept(std::move(call), Endpoint::kChat); }
void answer_completions(Call call) { accept(std::move(call), Endpoint::kCompletions); }

}  // namespace nmc::http
