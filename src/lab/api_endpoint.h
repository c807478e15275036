// An OpenAI server somewhere, over http or https.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/files.h"
#include "base/result.h"
#include "net/address.h"
#include "net/http.h"
#include "net/tcp_stream.h"

namespace nmc::lab {

// A value; thread-safe.
struct ApiEndpoint {
  net::Address address;
  bool tls = false;
  std::string base;  // before "/v1/...": "" or "/prefix"
  Path authorities;  // tls: the certificates that are trusted

  // "http[s]://HOST[:PORT][/PREFIX]", with or without "/v1" at its end. kInvalidArgument names `text` and the form.
  static Result<ApiEndpoint> parse(std::string_view text);
  std::string to_string() const;

  // A connection that never blocks, at `until` (by real_clock()) at the latest. Errors as dial()'s and
  // secure_client()'s.
  Result<net::TcpStream> connect(Nanos until) const;
  // A request as bytes; `path` begins with "/".
  std::string format_request(std::string_view method, std::string_view path,
                             const std::vector<net::HttpHeader>& headers, std::string_view body) const;
};

// A GET on a connection of its own: the answer's status and body, whatever the status.
Result<net::HttpResponse> api_get(const ApiEndpoint& endpoint, std::string_view path,
                                  const std::vector<net::HttpHeader>& headers, Nanos timeout);

}  // namespace nmc::lab
