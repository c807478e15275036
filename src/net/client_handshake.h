// Internal to net: the client's side of net/handshake.h.
#pragma once

#include <string_view>

#include "base/clock.h"
#include "base/result.h"
#include "net/address.h"
#include "net/client_wire.h"

namespace nmc::net {

// On a connection just made, until `until` (by real_clock()) at the latest. Errors: see Channel::connect.
Result<void> shake_hands_with_server(ClientWire& wire, const Address& address, std::string_view token, Nanos until);

}  // namespace nmc::net
