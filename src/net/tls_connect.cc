#include "net/tls_connect.h"

#include <poll.h>

#include <ctime>

#include "net/tls.h"

namespace nmc::net {
namespace {

Result<void> shake_hands(TlsSession& session, int fd, Nanos until) {
  for (;;) {
    NMC_ASSIGN_OR_RETURN(const TlsSession::Step step, session.shake_hands());
    if (step == TlsSession::Step::kDone) return {};
    const auto left = (until - real_clock().now()).count();
    const short events = step == TlsSession::Step::kWantsRead ? POLLIN : POLLOUT;
    pollfd poll{.fd = fd, .events = events, .revents = 0};
    const timespec timeout{.tv_sec = left / 1'000'000'000, .tv_nsec = left % 1'000'000'000};
    const int ready = left <= 0 ? 0 : ::ppoll(&poll, 1, &timeout, nullptr);
    if (ready == 0)
      return deadline_exceeded("took the connection and then said nothing: is it a nano-mooncake server with TLS?");
    if (ready < 0 && errno != EINTR) return Failure(os_error("poll", "the server"));
  }
}

}  // namespace

Result<void> secure_client(TcpStream& stream, const Address& address, const Path& authorities, Nanos until) {
  NMC_ASSIGN_OR_RETURN(const auto context, TlsContext::for_client(authorities));
  NMC_ASSIGN_OR_RETURN(auto session, TlsSession::create(*context, stream.fd(), address.host));
  if (Result<void> done = shake_hands(*session, stream.fd(), until); !done)
    return Failure(std::move(done).error().with_context(address.to_string()));
  stream.secure(std::move(session));
  return {};
}

}  // namespace nmc::net
