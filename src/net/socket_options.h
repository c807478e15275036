// Internal to net: what both ends need of sockets.
#pragma once

#include <sys/un.h>

#include <string>

#include "base/clock.h"
#include "base/result.h"

namespace nmc::net {

// kInvalidArgument: `path` is empty or longer than the kernel allows.
Result<sockaddr_un> unix_socket_name(const std::string& path);

// SO_RCVTIMEO or SO_SNDTIMEO. `timeout` is at least a microsecond and may be absurdly long.
void set_timeout(int fd, int option, Nanos timeout);

// Buffers of a Unix socket that hold the largest datagram and a few more.
void hold_datagrams(int fd);

}  // namespace nmc::net
