// Which pages of other origins may read the server's answers: none, unless told. Browsers ask and obey; nobody else is
// kept from anything by this.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "net/http.h"

namespace nmc::http {

// "*", or scheme://host[:port] in lower case, as browsers spell it: without a path, without the scheme's own port.
bool is_cors_origin(std::string_view text);

// Immutable. Credentials are never allowed: the API key comes in a header that the page sets by itself, and there are
// no cookies.
class Cors {
 public:
  // `origins` as is_cors_origin() has them; "*" is all.
  explicit Cors(std::vector<std::string> origins);

  // What the answer to `request` carries.
  std::vector<net::HttpHeader> headers(const net::HttpRequest& request) const;

  // Whether `request` only asks if a page of an allowed origin may send another one, ...
  bool is_preflight(const net::HttpRequest& request) const;
  // ... and its answer, but for headers(), on a path that takes `methods` ("GET, HEAD").
  static net::HttpResponse preflight(const net::HttpRequest& request, const std::string& methods);

 private:
  bool allows(const net::HttpRequest& request) const;

  std::vector<std::string> origins_;
  bool any_ = false;
};

}  // namespace nmc::http
