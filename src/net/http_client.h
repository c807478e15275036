// A GET over HTTP/1, for programs that look at a server: one request a connection, blocking, bounded in time and size.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "net/address.h"
#include "net/http.h"

namespace nmc::net {

// "http://HOST[:PORT][/PATH]", an IPv6 host in brackets; port 80 where none is said.
struct HttpUrl {
  Address address;     // TCP
  std::string target;  // "/", or the path as it was written

  // kInvalidArgument names `text` and the form; kUnsupported: https.
  static Result<HttpUrl> parse(std::string_view text);
  // The same server, another path.
  HttpUrl at(std::string_view path) const { return {address, std::string(path)}; }
  std::string to_string() const;
};

struct HttpClientOptions {
  std::vector<HttpHeader> headers;           // beside Host, Connection and Accept
  Nanos timeout = std::chrono::seconds(10);  // from the look-up of the name to the last byte
  std::size_t max_header_bytes = 64 << 10;
  std::size_t max_body_bytes = 16 << 20;
};

// The answer, whatever its status; redirections aren't followed. Errors name the URL: as dial()'s; kDeadlineExceeded;
// kUnavailable: it broke off; kCorrupt: what came is no HTTP; kResourceExhausted: more bytes than allowed.
// Thread-safe.
Result<HttpResponse> http_get(const HttpUrl& url, const HttpClientOptions& options = {});

}  // namespace nmc::net
