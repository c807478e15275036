// The query of a request target: "key=a%2Fb&force=1".
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace nmc::net {

// Undoes the encoding of forms, once: %2F is '/', + is a space (a plus is sent as %2B). What comes out may be any
// bytes, NUL included. A % that two hexadecimal digits don't follow is kInvalidArgument.
Result<std::string> decode_query_text(std::string_view text);

// The decoded value of the first parameter of that name; "" if it has none ("key", "key="), nullopt without such a
// parameter. Names are decoded before they are compared.
Result<std::optional<std::string>> query_value(std::string_view query, std::string_view name);

}  // namespace nmc::net
