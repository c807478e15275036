#include "http/cors.h"

#include <algorithm>
#include <utility>

namespace nmc::http {
namespace {

constexpr const char* kAnswerSeconds = "600";  // that a browser may remember a preflight's answer

bool is_lower_case_word(std::string_view text, std::string_view others) {
  return !text.empty() && std::ranges::all_of(text, [others](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || others.find(c) != others.npos;
  });
}

}  // namespace

bool is_cors_origin(std::string_view text) {
  if (text == "*") return true;
  const std::size_t colon = text.find("://");
  if (colon == text.npos || !is_lower_case_word(text.substr(0, colon), "+-.")) return false;
  // The address of IPv6 has its own colons, in brackets.
  return is_lower_case_word(text.substr(colon + 3), "-._:[]");
}

Cors::Cors(std::vector<std::string> origins) : origins_(std::move(origins)) {
  any_ = std::ranges::find(origins_, "*") != origins_.end();
}

bool Cors::allows(const net::HttpRequest& request) const {
  const std::string* origin = request.header("Origin");
  return origin != nullptr && (any_ || std::ranges::find(origins_, *origin) != origins_.end());
}

std::vector<net::HttpHeader> Cors::headers(const net::HttpRequest& request) const {
  if (origins_.empty()) return {};
  std::vector<net::HttpHeader> headers;
  if (allows(request)) {
    headers.push_back({"Access-Control-Allow-Origin", any_ ? "*" : *request.header("Origin")});
    headers.push_back({"Access-Control-Expose-Headers", "Retry-After, X-Request-Id"});
  }
  // Also where there is no origin: a cache must not give one page what another was answered.
  if (!any_) headers.push_back({"Vary", "Origin"});
  return headers;
}

bool Cors::is_preflight(const net::HttpRequest& request) const {
  return request.method == "OPTIONS" && request.header("Access-Control-Request-Method") != nullptr && allows(request);
}

net::HttpResponse Cors::preflight(const net::HttpRequest& request, const std::string& methods) {
  net::HttpResponse response{.status = 200, .content_type = ""};
  response.headers = {{"Access-Control-Allow-Methods", methods}, {"Access-Control-Max-Age", kAnswerSeconds}};
  // Clients send headers of their own (the openai package ten of them), and none means anything to be kept from.
  if (const std::string* asked = request.header("Access-Control-Request-Headers"); asked != nullptr) {
    response.headers.push_back({"Access-Control-Allow-Headers", *asked});
  }
  return response;
}

}  // namespace nmc::http
