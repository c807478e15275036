// Messages over a loopback TCP connection between two threads of this process. Wire format, all little-endian:
//
//   connection = secret[32] frame*
//   frame      = magic u32 ("NMCF") | version u32 | id u64 | size u64 | XXH3 of the 24 bytes before u64 | payload[size]
//
// The payload carries its own checksums (kv/snapshot.h); the frame only has to be told apart from noise.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <thread>
#include <unordered_map>
#include <unordered_set>

#include "base/failpoint.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/mutex.h"
#include "transport/mover.h"

namespace nmc::transport {
namespace {

using Secret = std::array<std::byte, 32>;

constexpr std::uint32_t kMagic = 0x46434d4e;  // "NMCF"
constexpr std::uint32_t kVersion = 1;

struct FrameHeader {
  std::uint32_t magic = kMagic;
  std::uint32_t version = kVersion;
  std::uint64_t id = 0;
  std::uint64_t size = 0;
  std::uint64_t checksum = 0;  // of the fields above

  std::uint64_t sum() const { return checksum64(std::as_bytes(std::span(this, 1)).first(24)); }
};
static_assert(sizeof(FrameHeader) == 32);

// Waits until `fd` is ready for `events`, `stop` is signalled or nothing happened for `deadline`.
enum class Ready { kYes, kStopped, kTimeout };
Ready wait_ready(int fd, short events, int stop, Nanos deadline) {
  pollfd fds[2] = {{fd, events, 0}, {stop, POLLIN, 0}};
  const int timeout_ms = static_cast<int>(std::chrono::ceil<std::chrono::milliseconds>(deadline).count());
  const int got = retry_on_eintr([&] { return ::poll(fds, stop >= 0 ? 2 : 1, timeout_ms); });
  if (got == 0) return Ready::kTimeout;
  if (stop >= 0 && fds[1].revents != 0) return Ready::kStopped;
  return Ready::kYes;
}

// Sockets are non-blocking; the deadline runs anew with every byte that moves.
Result<void> write_all(int fd, std::span<const std::byte> bytes, Nanos deadline) {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent > 0) {
      bytes = bytes.subspan(static_cast<std::size_t>(sent));
    } else if (sent < 0 && errno == EINTR) {
      continue;
    } else if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
      if (wait_ready(fd, POLLOUT, -1, deadline) == Ready::kTimeout) {
        return deadline_exceeded("tcp hand-over: the peer took no byte for {} ms", to_ms(deadline));
      }
    } else {
      return Failure(os_error("send", "tcp hand-over"));
    }
  }
  return {};
}

// kCancelled: `stop` was signalled. An idle connection may wait for its first byte for ever (deadline max).
Result<void> read_all(int fd, std::span<std::byte> bytes, int stop, Nanos deadline) {
  while (!bytes.empty()) {
    const ssize_t got = ::recv(fd, bytes.data(), bytes.size(), MSG_DONTWAIT);
    if (got > 0) {
      bytes = bytes.subspan(static_cast<std::size_t>(got));
    } else if (got == 0) {
      return unavailable("tcp hand-over: the peer closed with {} bytes to come", bytes.size());
    } else if (errno == EINTR) {
      continue;
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      const Ready ready = wait_ready(fd, POLLIN, stop, deadline);
      if (ready == Ready::kStopped) return cancelled("tcp hand-over: stopped");
      if (ready == Ready::kTimeout) return deadline_exceeded("tcp hand-over: no byte came for {} ms", to_ms(deadline));
    } else {
      return Failure(os_error("recv", "tcp hand-over"));
    }
  }
  return {};
}

Result<UniqueFd> tcp_socket() {
  UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!fd) return Failure(os_error("socket", "tcp hand-over"));
  return fd;
}

constexpr Nanos kIdle = std::chrono::hours(24 * 20);  // poll() takes milliseconds in an int

class TcpMover final : public Mover {
 public:
  explicit TcpMover(MoverOptions options) : options_(options) {}

  ~TcpMover() override {
    const std::uint64_t one = 1;
    if (stop_) (void)!::write(stop_.get(), &one, sizeof one);
    if (receiver_.joinable()) receiver_.join();
  }

  Result<void> open() {
    if (::getrandom(secret_.data(), secret_.size(), 0) != static_cast<ssize_t>(secret_.size())) {
      return Failure(os_error("getrandom", "tcp hand-over"));
    }
    stop_ = UniqueFd(::eventfd(0, EFD_CLOEXEC));
    if (!stop_) return Failure(os_error("eventfd", "tcp hand-over"));
    NMC_ASSIGN_OR_RETURN(listener_, tcp_socket());
    address_.sin_family = AF_INET;
    address_.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof address_;
    auto* generic = reinterpret_cast<sockaddr*>(&address_);
    if (::bind(listener_.get(), generic, length) != 0 || ::listen(listener_.get(), 16) != 0 ||
        ::getsockname(listener_.get(), generic, &length) != 0) {
      return Failure(os_error("listen", "tcp hand-over on loopback"));
    }
    receiver_ = std::thread([this] { receive_loop(); });
    return {};
  }

  const char* carrier() const override { return "tcp"; }

  Result<Buffer> allocate(std::size_t size) override {
    if (size > options_.message_bytes_max) {
      return invalid_argument("message of {} bytes, expected at most {}", size, options_.message_bytes_max);
    }
    NMC_ASSIGN_OR_RETURN(Mapping mapping, Mapping::anonymous(size));
    return Buffer(UniqueFd(), std::move(mapping));
  }

  Result<void> send(std::uint64_t id, Buffer buffer) override {
    if (auto hit = failpoint("transport.tcp.send")) return Failure(*std::move(hit));
    Result<void> done = send_frame(id, buffer.bytes());
    if (!done) {
      sender_ = UniqueFd();  // half a frame may be out: the next message starts on a fresh connection
      return done;
    }
    MutexLock lock(mutex_);
    ++counters_.messages_sent;
    counters_.bytes_sent += buffer.bytes().size();
    return {};
  }

  Result<Buffer> receive(std::uint64_t id) override {
    if (auto hit = failpoint("transport.tcp.receive")) {
      discard(id);
      return Failure(*std::move(hit));
    }
    MutexLock lock(mutex_);
    std::uint64_t seen = progress_;
    while (!arrived_.contains(id)) {
      const bool woken = changed_.wait_until(mutex_, std::chrono::steady_clock::now() + options_.progress_deadline);
      if (!woken && progress_ == seen) {
        discarded_.insert(id);
        return deadline_exceeded("tcp hand-over: message {} made no progress for {} ms", id,
                                 to_ms(options_.progress_deadline));
      }
      if (lost_.erase(id) > 0) return unavailable("tcp hand-over: the connection broke within message {}", id);
      seen = progress_;
    }
    Buffer buffer = std::move(arrived_.at(id));
    arrived_.erase(id);
    ++counters_.messages_received;
    counters_.bytes_received += buffer.bytes().size();
    return buffer;
  }

  void discard(std::uint64_t id) override {
    MutexLock lock(mutex_);
    lost_.erase(id);
    if (arrived_.erase(id) == 0) discarded_.insert(id);
  }

  MoverCounters counters() const override {
    MutexLock lock(mutex_);
    return counters_;
  }

 private:
  Result<void> connect_sender() {
    NMC_ASSIGN_OR_RETURN(UniqueFd fd, tcp_socket());
    if (retry_on_eintr(
            [&] { return ::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address_), sizeof address_); }) != 0) {
      return Failure(os_error("connect", "tcp hand-over on loopback"));
    }
    const int on = 1;
    ::setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    NMC_RETURN_IF_ERROR(write_all(fd.get(), secret_, options_.progress_deadline));
    sender_ = std::move(fd);
    return {};
  }

  Result<void> send_frame(std::uint64_t id, std::span<const std::byte> payload) {
    if (!sender_) NMC_RETURN_IF_ERROR(connect_sender());
    FrameHeader header{.id = id, .size = payload.size()};
    header.checksum = header.sum();
    NMC_RETURN_IF_ERROR(write_all(sender_.get(), std::as_bytes(std::span(&header, 1)), options_.progress_deadline));
    return write_all(sender_.get(), payload, options_.progress_deadline);
  }

  void receive_loop() {
    for (;;) {
      if (wait_ready(listener_.get(), POLLIN, stop_.get(), kIdle) == Ready::kStopped) return;
      UniqueFd connection(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
      if (!connection) continue;
      Secret secret;
      const Result<void> greeted = read_all(connection.get(), secret, stop_.get(), options_.progress_deadline);
      if (!greeted || secret != secret_) continue;  // a stranger
      const Error end = read_frames(connection.get());
      if (end.code == ErrorCode::kCancelled) return;
      log_warning("{}", end.message);
    }
  }

  // Reads until the connection ends, and says why.
  Error read_frames(int fd) {
    for (;;) {
      FrameHeader header;
      if (Result<void> got = read_all(fd, std::as_writable_bytes(std::span(&header, 1)), stop_.get(), kIdle); !got) {
        return std::move(got).error();
      }
      if (header.magic != kMagic || header.version != kVersion || header.checksum != header.sum() ||
          header.size > options_.message_bytes_max) {
        return Error{ErrorCode::kCorrupt, "tcp hand-over: a frame header that isn't ours"};
      }
      Result<Buffer> buffer = read_payload(fd, header.size);
      MutexLock lock(mutex_);
      if (!buffer) {
        lost_.insert(header.id);
        changed_.notify_all();
        return std::move(buffer).error();
      }
      if (discarded_.erase(header.id) == 0) arrived_.insert_or_assign(header.id, std::move(*buffer));
      ++progress_;
      changed_.notify_all();
    }
  }

  Result<Buffer> read_payload(int fd, std::size_t size) {
    NMC_ASSIGN_OR_RETURN(Buffer buffer, allocate(size));
    constexpr std::size_t kPiece = std::size_t{1} << 20;
    for (std::span<std::byte> rest = buffer.bytes(); !rest.empty();) {
      const std::size_t piece = std::min(rest.size(), kPiece);
      NMC_RETURN_IF_ERROR(read_all(fd, rest.first(piece), stop_.get(), options_.progress_deadline));
      rest = rest.subspan(piece);
      MutexLock lock(mutex_);
      ++progress_;
    }
    return buffer;
  }

  const MoverOptions options_;
  Secret secret_{};
  UniqueFd stop_;
  UniqueFd listener_;
  sockaddr_in address_{};
  UniqueFd sender_;  // send()'s own
  std::thread receiver_;

  mutable Mutex mutex_;
  CondVar changed_;
  std::unordered_map<std::uint64_t, Buffer> arrived_ NMC_GUARDED_BY(mutex_);
  std::unordered_set<std::uint64_t> discarded_ NMC_GUARDED_BY(mutex_);  // dropped when they arrive
  std::unordered_set<std::uint64_t> lost_ NMC_GUARDED_BY(mutex_);       // broke off on the way
  std::uint64_t progress_ NMC_GUARDED_BY(mutex_) = 0;
  MoverCounters counters_ NMC_GUARDED_BY(mutex_);
};

}  // namespace

Result<std::unique_ptr<Mover>> create_tcp_mover(MoverOptions options) {
  auto mover = std::make_unique<TcpMover>(options);
  NMC_RETURN_IF_ERROR(mover->open());
  return std::unique_ptr<Mover>(std::move(mover));
}

}  // namespace nmc::transport
