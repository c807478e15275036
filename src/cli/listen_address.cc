#include "cli/listen_address.h"

namespace nmc::cli {

bool is_loopback(std::string_view host) { return host == "localhost" || host == "::1" || host.starts_with("127."); }

}  // namespace nmc::cli
