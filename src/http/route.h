// The server's table of paths. A route says how a request is answered and, in the same place, what /openapi.json says
// of it, so that documentation and routing can't differ.
#pragma once

#include <memory>
#include <span>
#include <string_view>

#include "base/json.h"
#include "http/server_state.h"
#include "http/task_thread.h"
#include "net/http.h"
#include "net/http_server.h"

namespace nmc::http {

using Exchange = std::shared_ptr<net::HttpExchange>;

// A request on its way to its answer.
struct Call {
  const std::shared_ptr<ServerState>& state;
  TaskThread& bodies;  // reads large bodies away from the I/O threads
  net::HttpRequest request;
  Exchange exchange;
};

// kKey: with an API key set, only requests that carry it. kOpen: what probes and scrapers read, which have none.
enum class Access { kOpen, kKey };

struct Route {
  std::string_view method;  // GET (which answers HEAD too) or POST
  std::string_view path;    // compared whole
  Access access;
  void (*handle)(Call call);  // on an I/O thread: must not block
  // The OpenAPI operation object but for what follows from the other members (errors of access, method and size). Its
  // schemas are those of schema_components() in openapi_schemas.h.
  Json (*operation)(const ServerState& state);
};

// All of them, in the order of the documentation.
std::span<const Route> all_routes();

}  // namespace nmc::http
