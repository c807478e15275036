// The transfer engine's metadata over HTTP: nodes publish under a key how they are reached and which buffers they offer
// (JSON to them, bytes to us), and others look it up. Keys are theirs too: "mooncake/ram/<segment>",
// "mooncake/rpc_meta/<server>". Everything is in memory and ends with the process; nodes publish again.
//
//   GET    /metadata?key=K   200 and the body as it was put; 404 `metadata not found`
//   PUT    /metadata?key=K   200 `metadata updated`, or of a key that holds "rpc_meta" and is there already:
//                            200 `metadata unchanged` for the same body, 400 `Duplicate rpc_meta key not allowed` else;
//                            who moves to another address deletes the old entry first
//   DELETE /metadata?key=K   200 `metadata deleted`; 404 `metadata not found`
//   GET    /health           200 `OK`
//
// A key is what net/http_query.h decodes, any bytes, without white space at its ends. One that is absent or blank is a
// 400, another method a 405 with Allow, a body beyond the limit a 413, a full service a 507, another path a 404.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "base/mutex.h"
#include "base/result.h"
#include "net/http.h"
#include "net/http_server.h"

namespace nmc::store {

struct MetadataLimits {
  std::size_t max_keys = 1 << 17;
  std::size_t max_body_bytes = 8 << 20;     // of one key
  std::size_t max_total_bytes = 256 << 20;  // keys and bodies together
};

// Thread-safe.
class MetadataService {
 public:
  explicit MetadataService(MetadataLimits limits = {}) : limits_(limits) {}

  // The answer to any request, whatever server it came by. Doesn't block but for the lock of the table.
  net::HttpResponse handle(const net::HttpRequest& request) NMC_EXCLUDES(mutex_);

  // For an embedding process that knows a node to be gone; true if the key was there.
  bool remove(std::string_view key) NMC_EXCLUDES(mutex_);

  struct Stats {
    std::size_t keys = 0;
    std::size_t bytes = 0;  // of keys and bodies
  };
  Stats stats() const NMC_EXCLUDES(mutex_);
  const MetadataLimits& limits() const { return limits_; }

 private:
  net::HttpResponse get(std::string_view key) const NMC_EXCLUDES(mutex_);
  net::HttpResponse put(std::string_view key, std::string_view body) NMC_EXCLUDES(mutex_);

  const MetadataLimits limits_;
  mutable Mutex mutex_;
  std::map<std::string, std::string, std::less<>> entries_ NMC_GUARDED_BY(mutex_);
  std::size_t bytes_ NMC_GUARDED_BY(mutex_) = 0;
};

// A server of its own for `service`, which outlives it. The service's limit on bodies takes the place of the one in
// `options`. Errors are those of HttpServer::start.
Result<std::unique_ptr<net::HttpServer>> serve_metadata(MetadataService& service, net::HttpServerOptions options);

}  // namespace nmc::store
