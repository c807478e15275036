#include "cli/listen_address.h"

namespace nmc::cli {

bool is_loopback(std::string_view host) { return host == "localhost" || host == "::1" || host.starts_with("127."); }

Result<net::Address> parse_listen_address(std::string_view text) {
  constexpr std::string_view kAnyPort = ":0";
  if (!text.ends_with(kAnyPort)) return net::Address::parse(text);
  NMC_ASSIGN_OR_RETURN(net::Address address, net::Address::parse(std::string(text.substr(0, text.size() - 1)) + "1"));
  address.port = 0;
  return address;
}

}  // namespace nmc::cli
