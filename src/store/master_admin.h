// Metrics and administration of a master over HTTP. Paths, statuses and bodies are those that dashboards and scripts
// written for Mooncake's master read: docs/formats.md, "Master administration".
#pragma once

#include <memory>
#include <string>

#include "base/result.h"
#include "net/http.h"
#include "net/http_server.h"
#include "store/node_server.h"

namespace nmc::store {

struct MasterAdminOptions {
  std::string address;  // that clients of the master connect to, for /leader
  std::string token;    // asked for as `Authorization: Bearer TOKEN` by all but /health; "": none
};

// Thread-safe. `server` outlives it.
class MasterAdmin {
 public:
  MasterAdmin(NodeServer& server, MasterAdminOptions options) : server_(server), options_(std::move(options)) {}

  // The answer to any request. Takes the master's lock now and then, for as long as it takes to list what is there.
  net::HttpResponse handle(const net::HttpRequest& request);

 private:
  using Route = net::HttpResponse (MasterAdmin::*)(const net::HttpRequest& request);
  static Route find_route(const net::HttpRequest& request, std::string& allowed);

  net::HttpResponse metrics(const net::HttpRequest& request);
  net::HttpResponse metrics_summary(const net::HttpRequest& request);
  net::HttpResponse health(const net::HttpRequest& request);
  net::HttpResponse role(const net::HttpRequest& request);
  net::HttpResponse ha_status(const net::HttpRequest& request);
  net::HttpResponse leader(const net::HttpRequest& request);
  net::HttpResponse kv_events_status(const net::HttpRequest& request);
  net::HttpResponse query_key(const net::HttpRequest& request);
  net::HttpResponse batch_query_keys(const net::HttpRequest& request);
  net::HttpResponse get_all_keys(const net::HttpRequest& request);
  net::HttpResponse get_all_segments(const net::HttpRequest& request);
  net::HttpResponse query_segment(const net::HttpRequest& request);
  net::HttpResponse get_segments_detail(const net::HttpRequest& request);
  net::HttpResponse remove_all(const net::HttpRequest& request);
  net::HttpResponse not_supported(const net::HttpRequest& request);

  NodeServer& server_;
  const MasterAdminOptions options_;
};

// A server of its own for `admin`, which outlives it. Errors are those of HttpServer::start.
Result<std::unique_ptr<net::HttpServer>> serve_master_admin(MasterAdmin& admin, net::HttpServerOptions options);

}  // namespace nmc::store
