// For net, and for who measures other servers: a connected, blocking socket to an address.
#pragma once

#include "base/clock.h"
#include "base/result.h"
#include "base/syscall.h"
#include "net/address.h"

namespace nmc::net {

// Gives up at `until` (by real_clock()), looking up the name included. kUnavailable: nobody listens there or the host
// can't be reached; kDeadlineExceeded; kNotFound: no such host; kPermissionDenied: the socket file is not for this
// user.
Result<UniqueFd> dial(const Address& address, Nanos until);

}  // namespace nmc::net
