// HTTP/1 messages as plain values.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace nmc::net {

struct HttpHeader {
  std::string name;
  std::string value;
};

struct HttpRequest {
  std::string method;  // as sent: "GET"
  std::string target;  // as sent: "/v1/models?x=1"
  std::string path;    // the target up to '?', without scheme and host where it has them; escapes are kept
  std::string query;   // what follows '?'
  std::vector<HttpHeader> headers;
  std::string body;

  // The first header of that name (any case); nullptr without one.
  const std::string* header(std::string_view name) const;
};

struct HttpResponse {
  int status = 200;
  std::string content_type = "application/json";
  std::string body;
  std::vector<HttpHeader> headers;  // further ones; length, connection and type are set by the server
};

// "Not Found"; "Unknown" for a status without a phrase.
std::string_view http_reason(int status);

// Path and query of a request target ("/x?y", "http://host/x?y", "*").
struct HttpTarget {
  std::string path;
  std::string query;
};
HttpTarget split_http_target(std::string_view target);

// Names of headers and media types are compared without regard to case.
bool equals_ignoring_case(std::string_view a, std::string_view b);

}  // namespace nmc::net
