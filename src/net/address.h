// Where a server of ours listens: "unix:/run/nmc/store.sock", "10.0.0.7:50051", "[::1]:50051", "host.example:50051".
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace nmc::net {

enum class Carrier { kUnix, kTcp };
const char* carrier_name(Carrier carrier);  // "unix", "tcp"

// The kernel's limit for the path of a Unix socket.
constexpr std::size_t kUnixPathBytesMax = 107;

struct Address {
  Carrier carrier = Carrier::kTcp;
  std::string path;  // Unix
  std::string host;  // TCP: a name or a numeric address, without brackets
  std::uint16_t port = 0;

  // kInvalidArgument names `text` and the two forms.
  static Result<Address> parse(std::string_view text);
  std::string to_string() const;
  bool operator==(const Address&) const = default;
};

}  // namespace nmc::net
