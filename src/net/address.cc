#include "net/address.h"

#include <charconv>

namespace nmc::net {
namespace {

constexpr std::string_view kUnixPrefix = "unix:";

Failure malformed(std::string_view text, std::string_view why) {
  return invalid_argument("address \"{}\": {}, expected unix:/PATH or HOST:PORT (an IPv6 host in brackets)", text, why);
}

Result<Address> parse_unix(std::string_view text) {
  const std::string_view path = text.substr(kUnixPrefix.size());
  if (path.empty()) return malformed(text, "no path");
  if (path.find('\0') != path.npos) return malformed(text, "a zero byte in the path");
  if (path.size() > kUnixPathBytesMax) {
    return invalid_argument("address \"{}\": the path has {} bytes, a Unix socket takes at most {}", text, path.size(),
                            kUnixPathBytesMax);
  }
  return Address{.carrier = Carrier::kUnix, .path = std::string(path)};
}

}  // namespace

const char* carrier_name(Carrier carrier) { return carrier == Carrier::kUnix ? "unix" : "tcp"; }

Result<Address> Address::parse(std::string_view text) {
  if (text.starts_with(kUnixPrefix)) return parse_unix(text);

  const std::size_t colon = text.rfind(':');
  if (colon == text.npos) return malformed(text, "no port");
  std::string_view host = text.substr(0, colon);
  if (host.starts_with('[') && host.ends_with(']')) {
    host = host.substr(1, host.size() - 2);
  } else if (host.find(':') != host.npos) {
    return malformed(text, "more than one colon");
  }
  if (host.empty()) return malformed(text, "no host");
  if (host.find_first_of(std::string_view("[]/ \t\r\n\0", 8)) != host.npos) return malformed(text, "not a host name");

  const std::string_view digits = text.substr(colon + 1);
  std::uint16_t port = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), port);
  if (error != std::errc() || end != digits.data() + digits.size() || port == 0) {
    return malformed(text, "the port is not a number from 1 to 65535");
  }
  return Address{.carrier = Carrier::kTcp, .host = std::string(host), .port = port};
}

std::string Address::to_string() const {
  if (carrier == Carrier::kUnix) return fmt::format("{}{}", kUnixPrefix, path);
  return host.find(':') != host.npos ? fmt::format("[{}]:{}", host, port) : fmt::format("{}:{}", host, port);
}

}  // namespace nmc::net
