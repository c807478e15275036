#include "net/http_query.h"

#include <algorithm>

namespace nmc::net {
namespace {

// -1: not a hexadecimal digit.
int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

}  // namespace

Result<std::string> decode_query_text(std::string_view text) {
  std::string decoded;
  decoded.reserve(text.size());
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      decoded += text[i] == '+' ? ' ' : text[i];
      continue;
    }
    const int high = i + 2 < text.size() ? hex_digit(text[i + 1]) : -1;
    const int low = i + 2 < text.size() ? hex_digit(text[i + 2]) : -1;
    if (high < 0 || low < 0) {
      return invalid_argument("malformed escape at byte {} of a query parameter, expected % and two hexadecimal digits",
                              i);
    }
    decoded += static_cast<char>(high * 16 + low);
    i += 2;
  }
  return decoded;
}

Result<std::optional<std::string>> query_value(std::string_view query, std::string_view name) {
  while (!query.empty()) {
    const std::string_view parameter = query.substr(0, query.find('&'));
    query.remove_prefix(std::min(parameter.size() + 1, query.size()));
    const std::size_t equals = std::min(parameter.find('='), parameter.size());
    const Result<std::string> found = decode_query_text(parameter.substr(0, equals));
    if (!found || *found != name) continue;  // a malformed name is nobody's
    NMC_ASSIGN_OR_RETURN(std::string value,
                         decode_query_text(parameter.substr(std::min(equals + 1, parameter.size()))));
    return std::optional<std::string>(std::move(value));
  }
  return std::optional<std::string>();
}

}  // namespace nmc::net
