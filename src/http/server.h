// The OpenAI-compatible API over one runtime. What paths there are is in route.cc, and at /openapi.json.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/json.h"
#include "base/result.h"
#include "engine/runtime.h"
#include "model/adapter.h"
#include "model/model.h"
#include "net/http_server.h"
#include "store/store.h"

namespace nmc::http {

// An adapter beside the served model, under a name of its own.
struct ServedAdapter {
  std::string name;
  std::shared_ptr<const model::Adapter> adapter;
};

struct ServerOptions {
  net::HttpServerOptions http;  // address and limits; render_error is set by the server
  std::string served_model_name = "nano-mooncake";
  std::vector<ServedAdapter> adapters;  // names differ from each other and from the model's
  std::string api_key;       // "": none is asked for; else routes of Access::kKey need `Authorization: Bearer KEY`
  Nanos request_timeout{0};  // from arrival to the end of the answer; 0: none
  Nanos queue_timeout{0};    // of that, for a worker to take it; 0: none
  Json provenance;           // told in /v1/metrics: where figures of this server come from; null: nobody said
  std::vector<std::string> cors_origins;  // whose pages may read answers, as http/cors.h has them; empty: nobody's
};

struct ServerState;

// Thread-safe.
class Server {
 public:
  // Serves as soon as it returns. Model, runtime and store (nullptr: no pool and tier figures in the metrics) are
  // borrowed and outlive the server. Fails when it can't listen; the message names address and port.
  static Result<std::unique_ptr<Server>> start(ServerOptions options, const model::Model& model,
                                               engine::Runtime& runtime, const store::Store* store);
  // Cuts off what is still open and cancels it in the runtime.
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  const std::string& url() const;  // "http://127.0.0.1:8000"

  // From now on completions are answered 503 with Retry-After and /healthz says "draining" (503), so that balancers
  // look elsewhere. What runs goes on. Next: runtime.drain(), wait_idle(), destruction.
  void stop_accepting();
  // True when every answer is with its client's kernel, at most after `timeout`.
  bool wait_idle(Nanos timeout);

 private:
  class Impl;
  explicit Server(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace nmc::http
