#include "http/completion_routes.h"

#include <utility>

#include "http/completion.h"
#include "http/completion_request.h"
#include "http/engine_request.h"
#include "http/extra_headers.h"
#include "http/responses.h"
#include "http/status.h"

namespace nmc::http {
namespace {

constexpr const char* kIdHeader = "X-Request-Id";

// On an I/O thread or, for a large body, on the task thread. `given_id`: the header's; "": none. Names are the client's
// affair and may come twice; the engine's requests have names that are drawn, so that one client's cancel never means
// another's request.
void begin(const std::shared_ptr<ServerState>& state, const std::string& body, Endpoint endpoint,
           const std::string& given_id, const Exchange& plain_exchange) {
  EngineLimits limits{.context = state->context, .deadline = std::nullopt};
  if (state->options.request_timeout > Nanos{0})
    limits.deadline = state->clock().now() + state->options.request_timeout;
  auto request = parse_completion_request(body, endpoint, state->served);
  const std::string drawn_id = fmt::format("{:016x}{:016x}", state->draw(), state->draw());
  std::string id = given_id;
  if (id.empty() && request) id = request->request_id;
  if (id.empty()) id = drawn_id;
  const Exchange exchange = with_headers(plain_exchange, {{kIdHeader, id}});
  if (!request) return exchange->respond(error_response(request.error()));
  auto made = make_engine_requests(*request, drawn_id, state->model, limits, state->draw());
  if (!made) return exchange->respond(error_response(made.error()));
  for (engine::GenerateRequest& one : *made) one.adapter = state->adapter_of(request->model);
  const char* kind = endpoint == Endpoint::kChat ? "chatcmpl" : "cmpl";
  CompletionFormat format(endpoint, fmt::format("{}-{}", kind, id), state->clock().unix_seconds(),
                          state->served.models[request->model]);
  exchange->post(
      [state, exchange, format = std::move(format), request = std::move(*request), made = std::move(*made)]() mutable {
        start_completion(state, request, std::move(made), std::move(format), exchange);
      });
}

void accept(Call call, Endpoint endpoint) {
  if (call.state->draining.load()) {
    return call.exchange->respond(error_response({503, "the server is shutting down and takes no more requests", ""}));
  }
  const std::string* header = call.request.header(kIdHeader);
  const std::string id = header == nullptr ? "" : *header;
  if (header != nullptr && !is_request_id(id)) {
    return call.exchange->respond(error_response({400, fmt::format("{}: {}", kIdHeader, kRequestIdExpected), ""}));
  }
  with_json_body(std::move(call), [endpoint, id](const auto& state, const std::string& body, const Exchange& exchange) {
    begin(state, body, endpoint, id, exchange);
  });
}

}  // namespace

void answer_chat_completions(Call call) { accept(std::move(call), Endpoint::kChat); }
void answer_completions(Call call) { accept(std::move(call), Endpoint::kCompletions); }

}  // namespace nmc::http
