#include "net/dial.h"

#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <system_error>
#include <thread>
#include <vector>

#include "base/mutex.h"
#include "net/socket_options.h"
#include "net/tcp_stream.h"

namespace nmc::net {
namespace {

struct Endpoint {
  sockaddr_storage storage{};
  socklen_t size = 0;
  int family = 0;
};

Nanos left_until(Nanos until) { return until - real_clock().now(); }

// getaddrinfo()'s error, 0 with what was found.
struct Lookup {
  int error = 0;
  std::vector<Endpoint> found;
};

Lookup look_up(const std::string& host, std::uint16_t port, int flags) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV | flags;
  addrinfo* list = nullptr;
  Lookup lookup;
  lookup.error = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &list);
  if (lookup.error != 0) return lookup;
  for (const addrinfo* info = list; info != nullptr; info = info->ai_next) {
    Endpoint endpoint{.size = info->ai_addrlen, .family = info->ai_family};
    std::memcpy(&endpoint.storage, info->ai_addr, info->ai_addrlen);
    lookup.found.push_back(endpoint);
  }
  ::freeaddrinfo(list);
  return lookup;
}

// Name servers may take longer than any deadline, and getaddrinfo() can't be interrupted: it runs in a thread that is
// left to itself when time is up.
struct PendingLookup {
  Mutex mutex;
  CondVar changed;
  bool done NMC_GUARDED_BY(mutex) = false;
  Lookup lookup NMC_GUARDED_BY(mutex);
};

Result<Lookup> look_up_name(const Address& address, Nanos until) {
  auto pending = std::make_shared<PendingLookup>();
  std::thread([pending, host = address.host, port = address.port] {
    Lookup lookup = look_up(host, port, 0);
    MutexLock lock(pending->mutex);
    pending->lookup = std::move(lookup);
    pending->done = true;
    pending->changed.notify_all();
  }).detach();
  const auto deadline = std::chrono::steady_clock::now() + left_until(until);
  MutexLock lock(pending->mutex);
  while (!pending->done) {
    if (!pending->changed.wait_until(pending->mutex, deadline) && !pending->done) {
      return deadline_exceeded("can't connect to {}: its name was not resolved in time", address.to_string());
    }
  }
  return std::move(pending->lookup);
}

Result<std::vector<Endpoint>> resolve(const Address& address, Nanos until) {
  Lookup lookup = look_up(address.host, address.port, AI_NUMERICHOST);
  if (lookup.error != 0) {
    NMC_ASSIGN_OR_RETURN(lookup, look_up_name(address, until));
  }
  if (lookup.error != 0) {
    return not_found("can't connect to {}: {}", address.to_string(), ::gai_strerror(lookup.error));
  }
  return std::move(lookup.found);
}

Result<Endpoint> unix_endpoint(const std::string& path) {
  NMC_ASSIGN_OR_RETURN(const sockaddr_un name, unix_socket_name(path));
  Endpoint endpoint{.size = sizeof name, .family = AF_UNIX};
  std::memcpy(&endpoint.storage, &name, sizeof name);
  return endpoint;
}

Failure connect_failure(const Address& address, int error_number) {
  const std::string what = fmt::format("can't connect to {}", address.to_string());
  const std::string reason = std::generic_category().message(error_number);
  switch (error_number) {
    case EAGAIN:
    case EINPROGRESS:
    case ETIMEDOUT: return deadline_exceeded("{}: no answer in time", what);
    case EPROTOTYPE: return unavailable("{}: the socket is another program's, of another type", what);
    case ENOENT:
    case ENOTDIR:
    case ECONNREFUSED:
      return unavailable("{}: {}; is the server running there{}?", what, reason,
                         address.carrier == Carrier::kTcp ? ", and does it listen beyond loopback if it has to" : "");
    default: return Failure(os_error("connect to", address.to_string(), error_number));
  }
}

// A blocking connect() ends with SO_SNDTIMEO. Repeated after a signal it goes on waiting for the same attempt.
int connect_before(int fd, const Endpoint& endpoint, Nanos until) {
  for (;;) {
    const Nanos left = left_until(until);
    if (left <= Nanos::zero()) return ETIMEDOUT;
    set_timeout(fd, SO_SNDTIMEO, left);
    if (::connect(fd, reinterpret_cast<const sockaddr*>(&endpoint.storage), endpoint.size) == 0) return 0;
    if (errno == EISCONN) return 0;
    if (errno != EINTR) return errno;
  }
}

Result<UniqueFd> dial_unix(const Address& address, Nanos until) {
  NMC_ASSIGN_OR_RETURN(const Endpoint endpoint, unix_endpoint(address.path));
  UniqueFd fd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  if (!fd) return Failure(os_error("socket", address.to_string()));
  if (const int error = connect_before(fd.get(), endpoint, until); error != 0) {
    return connect_failure(address, error);
  }
  hold_datagrams(fd.get());
  return fd;
}

Result<UniqueFd> dial_tcp(const Address& address, Nanos until) {
  NMC_ASSIGN_OR_RETURN(const std::vector<Endpoint> endpoints, resolve(address, until));
  int error = ETIMEDOUT;
  for (std::size_t i = 0; i < endpoints.size(); ++i) {
    UniqueFd fd(::socket(endpoints[i].family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (!fd) {
      error = errno;
      continue;
    }
    TcpStream::tune(fd.get());
    // A silent address leaves time for those behind it.
    const Nanos share = left_until(until) / static_cast<int>(endpoints.size() - i);
    error = connect_before(fd.get(), endpoints[i], real_clock().now() + share);
    if (error == 0) {
      TcpStream::tune_connected(fd.get());
      return fd;
    }
  }
  return connect_failure(address, error);
}

}  // namespace

Result<UniqueFd> dial(const Address& address, Nanos until) {
  return address.carrier == Carrier::kUnix ? dial_unix(address, until) : dial_tcp(address, until);
}

}  // namespace nmc::net
