// What commands that listen say about their address.
#pragma once

#include <string_view>

namespace nmc::cli {

// Only this host reaches it. A name counts as what it commonly stands for.
bool is_loopback(std::string_view host);

}  // namespace nmc::cli
