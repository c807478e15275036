#include "http/responses.h"

#include <utility>

#include "http/status.h"

namespace nmc::http {
namespace {

// Larger bodies are parsed and tokenized away from the I/O threads, of which each carries many streams.
constexpr std::size_t kInlineBodyBytes = 32 << 10;

bool is_json_type(std::string_view content_type) {
  const std::size_t end = content_type.find(';');
  std::string_view type = content_type.substr(0, end);
  while (!type.empty() && (type.back() == ' ' || type.back() == '\t')) type.remove_suffix(1);
  return net::equals_ignoring_case(type, "application/json");
}

}  // namespace

net::HttpResponse json_response(const Json& json, int status) { return {.status = status, .body = dump_json(json)}; }

net::HttpResponse empty_response(int status) { return {.status = status, .content_type = ""}; }

void with_json_body(Call call, BodyWork work) {
  const std::string* type = call.request.header("Content-Type");
  if (type != nullptr && !is_json_type(*type)) {
    return call.exchange->respond(
        error_response({400, fmt::format("Content-Type: expected application/json, got {}", *type), ""}));
  }
  const bool large = call.request.body.size() > kInlineBodyBytes;
  // This function keeps `exchange` until the task was taken: a dropped task would answer 500 by itself.
  const Exchange exchange = call.exchange;
  auto task = [state = call.state, exchange, work = std::move(work), body = std::move(call.request.body)] {
    work(state, body, exchange);
  };
  if (!large) return task();
  if (!call.bodies.post(std::move(task))) {
    exchange->respond(error_response({503, "too many large requests wait to be read already", ""}));
  }
}

}  // namespace nmc::http
