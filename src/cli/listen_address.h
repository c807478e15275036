// What commands that listen say about their address.
#pragma once

#include <string_view>

#include "base/result.h"
#include "net/address.h"

namespace nmc::cli {

// Only this host reaches it. A name counts as what it commonly stands for.
bool is_loopback(std::string_view host);

// As net::Address::parse(), and port 0, which picks a free one.
Result<net::Address> parse_listen_address(std::string_view text);

}  // namespace nmc::cli
