// For net, and for who measures other servers: the client's side of a TLS handshake on a connection just made.
#pragma once

#include "base/clock.h"
#include "base/files.h"
#include "base/result.h"
#include "net/address.h"
#include "net/tcp_stream.h"

namespace nmc::net {

// Until `until` (by real_clock()) at the latest. Errors: see Channel::connect.
Result<void> secure_client(TcpStream& stream, const Address& address, const Path& authorities, Nanos until);

}  // namespace nmc::net
