// For tests of channels: a handler that can do all a handler may do, peers that say exactly the bytes they are told to,
// and servers played by a script. Every wait ends after ten seconds, as a failure that the test then reports.
#pragma once

// clang-format off: before Asio
#include "net/asio.h"
// clang-format on

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/check.h"
#include "base/files.h"
#include "base/hash.h"
#include "base/mutex.h"
#include "net/channel.h"
#include "net/channel_server.h"
#include "net/handshake.h"

namespace nmc::net {

constexpr auto kTestPatience = std::chrono::seconds(10);

using Bytes = std::vector<std::byte>;

inline Bytes pattern(std::size_t size, std::uint64_t seed = 1) {
  Bytes bytes(size);
  std::uint64_t word = seed * 0x9e3779b97f4a7c15;
  for (std::size_t i = 0; i < size; ++i) {
    if (i % 8 == 0) word = (word ^ (word >> 29)) * 0xbf58476d1ce4e5b9 + i;
    bytes[i] = static_cast<std::byte>(word >> (8 * (i % 8)));
  }
  return bytes;
}

// A flag that one thread raises and others wait for.
class Signal {
 public:
  void raise() {
    MutexLock lock(mutex_);
    ++raised_;
    changed_.notify_all();
  }
  // True once it was raised `times`.
  bool wait(int times = 1, Nanos patience = kTestPatience) {
    const auto deadline = std::chrono::steady_clock::now() + patience;
    MutexLock lock(mutex_);
    while (raised_ < times) {
      if (!changed_.wait_until(mutex_, deadline)) return raised_ >= times;
    }
    return true;
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  int raised_ NMC_GUARDED_BY(mutex_) = 0;
};

enum TestOp : std::uint16_t {
  kEcho = 1,      // body and payload back
  kDigest,        // checksum64 of the payload, u64
  kGenerate,      // u64 size, u64 seed, u32 pieces -> pattern(size, seed) as payload
  kFail,          // the error that was asked for: u8 nothing | "no such thing"
  kIgnore,        // leaves the payload unread
  kPassFds,       // u32 count -> so many pipe ends to read "fd 0", "fd 1", ... from
  kCountCalls,    // how often this session asked, u64
  kHang,          // answers kCancelled once its wait is cancelled
  kCloseSession,  // Session::close()
  kThread,        // u64 that stands for the loop's thread
};

class TestHandler final : public MessageHandler {
 public:
  struct Calls final : SessionState {
    std::uint64_t count = 0;
  };

  void on_open(Session& session) override {
    session.state = std::make_unique<Calls>();
    opened.raise();
  }
  void on_close(Session& session) override {
    {
      MutexLock lock(mutex_);
      last_counters_ = session.counters().values();
    }
    closed.raise();
  }

  boost::asio::awaitable<Reply> handle(Session& session, Request& request) override {
    switch (request.op) {
      case kEcho: co_return co_await echo(request);
      case kDigest: co_return co_await digest(request);
      case kGenerate: co_return generate(request);
      case kFail: co_return Error{ErrorCode::kNotFound, "no such thing"};
      case kIgnore: co_return Reply();
      case kPassFds: co_return pass_fds(request);
      case kCountCalls: co_return count_calls(session);
      case kHang: co_return co_await hang();
      case kCloseSession: session.close(); co_return Reply();
      case kThread: co_return thread();
      default: co_return Error{ErrorCode::kUnsupported, fmt::format("op {}", request.op)};
    }
  }

  Signal opened, closed, hanging;
  // Of the session that closed last.
  MessageCounters::Values last_counters() {
    MutexLock lock(mutex_);
    return last_counters_;
  }

 private:
  static boost::asio::awaitable<Reply> echo(Request& request) {
    Reply reply;
    const ByteSpan body = request.body.get_fixed("all", request.body.left());
    reply.body.assign(body.begin(), body.end());
    auto payload = std::make_shared<Bytes>(request.payload_bytes);
    const Result<void> read = co_await request.read_payload(*payload);
    if (!read) co_return read.error();
    if (!payload->empty()) reply.payload.push_back(*payload);
    reply.keep_alive = std::move(payload);
    co_return reply;
  }

  static boost::asio::awaitable<Reply> digest(Request& request) {
    Checksum64 sum;
    Bytes piece(70'001);
    while (request.payload_left() > 0) {
      const std::size_t size = std::min<std::uint64_t>(piece.size(), request.payload_left());
      const Result<void> read = co_await request.read_payload(MutableByteSpan(piece).first(size));
      if (!read) co_return read.error();
      sum.update(ByteSpan(piece).first(size));
    }
    BodyWriter writer;
    writer.put_u64(sum.value());
    co_return Reply(std::move(writer));
  }

  static Reply generate(Request& request) {
    const std::uint64_t size = request.body.get_u64("size");
    const std::uint64_t seed = request.body.get_u64("seed");
    const std::uint32_t pieces = request.body.get_u32("pieces");
    if (Result<void> read = request.body.finish(); !read) return read.error();
    auto bytes = std::make_shared<Bytes>(pattern(size, seed));
    Reply reply;
    ByteSpan rest(*bytes);
    for (std::uint32_t i = 0; i + 1 < pieces; ++i) {
      reply.payload.push_back(rest.first(rest.size() / (pieces - i)));
      rest = rest.subspan(reply.payload.back().size());
    }
    reply.payload.push_back(rest);
    reply.keep_alive = std::move(bytes);
    return reply;
  }

  static Reply pass_fds(Request& request) {
    struct Pipes {
      std::vector<UniqueFd> ends;
    };
    auto pipes = std::make_shared<Pipes>();
    Reply reply;
    const std::uint32_t count = request.body.get_u32("count");
    for (std::uint32_t i = 0; i < count; ++i) {
      int ends[2];
      NMC_ASSERT(::pipe2(ends, O_CLOEXEC) == 0);
      pipes->ends.emplace_back(ends[0]);
      const UniqueFd to(ends[1]);
      const std::string text = fmt::format("fd {}", i);
      NMC_ASSERT(::write(to.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size()));
      reply.fds.push_back(ends[0]);
    }
    reply.keep_alive = std::move(pipes);
    return reply;
  }

  static Reply count_calls(Session& session) {
    BodyWriter writer;
    writer.put_u64(++static_cast<Calls&>(*session.state).count);
    return Reply(std::move(writer));
  }

  static Reply thread() {
    BodyWriter writer;
    writer.put_u64(std::hash<std::thread::id>{}(std::this_thread::get_id()));
    return Reply(std::move(writer));
  }

  boost::asio::awaitable<Reply> hang() {
    boost::asio::steady_timer never(co_await boost::asio::this_coro::executor, kTestPatience);
    hanging.raise();
    auto [error] = co_await never.async_wait(boost::asio::as_tuple(boost::asio::use_awaitable));
    co_return Error{error ? ErrorCode::kCancelled : ErrorCode::kInternal, "hung"};
  }

  Mutex mutex_;
  MessageCounters::Values last_counters_ NMC_GUARDED_BY(mutex_);
};

inline Bytes frame_bytes(const FrameHeader& header, ByteSpan body = {}, ByteSpan payload = {}) {
  FrameHeader whole = header;
  whole.body_bytes = static_cast<std::uint32_t>(body.size());
  whole.payload_bytes = payload.size();
  const FrameHeaderBytes head = encode_frame_header(whole);
  Bytes bytes(head.begin(), head.end());
  for (const ByteSpan part : {body, payload}) bytes.insert(bytes.end(), part.begin(), part.end());
  return bytes;
}

template <typename Value>
Bytes patched(Bytes bytes, std::size_t at, Value value) {
  std::memcpy(bytes.data() + at, &value, sizeof value);
  return bytes;
}

// A connected socket, used by hand.
class RawPeer {
 public:
  RawPeer(Carrier carrier, UniqueFd fd) : carrier_(carrier), fd_(std::move(fd)) {
    const timeval patience{10, 0};
    (void)::setsockopt(fd_.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    (void)::setsockopt(fd_.get(), SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
  }
  static RawPeer connect(const Address& address) {
    UniqueFd fd;
    int done;
    if (address.carrier == Carrier::kUnix) {
      fd = UniqueFd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
      sockaddr_un name{};
      name.sun_family = AF_UNIX;
      std::strcpy(name.sun_path, address.path.c_str());
      done = ::connect(fd.get(), reinterpret_cast<sockaddr*>(&name), sizeof name);
    } else {
      fd = UniqueFd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
      sockaddr_in name{};
      name.sin_family = AF_INET;
      name.sin_port = htons(address.port);
      name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
      done = ::connect(fd.get(), reinterpret_cast<sockaddr*>(&name), sizeof name);
    }
    NMC_ASSERT(done == 0, "{}", address.to_string());
    return RawPeer(address.carrier, std::move(fd));
  }

  // False: the other side has closed.
  bool send(ByteSpan bytes) {
    while (!bytes.empty()) {
      const ssize_t count = ::send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (count <= 0) return false;
      bytes = bytes.subspan(static_cast<std::size_t>(count));
    }
    return true;
  }

  // The next whole frame, or nothing.
  std::optional<std::pair<FrameHeader, Bytes>> receive() {
    Bytes bytes(kDatagramBytesMax);
    if (carrier_ == Carrier::kUnix) {
      const ssize_t count = ::recv(fd_.get(), bytes.data(), bytes.size(), 0);
      if (count < static_cast<ssize_t>(kFrameHeaderBytes)) return std::nullopt;
      bytes.resize(static_cast<std::size_t>(count));
    } else {
      bytes.resize(kFrameHeaderBytes);
      if (!receive_exactly(bytes)) return std::nullopt;
    }
    const auto header = decode_frame_header(ByteSpan(bytes).first<kFrameHeaderBytes>(), {});
    if (!header) return std::nullopt;
    if (carrier_ == Carrier::kTcp) {
      Bytes rest(header->body_bytes + header->payload_bytes);
      if (!receive_exactly(rest)) return std::nullopt;
      return std::pair(*header, rest);
    }
    return std::pair(*header, Bytes(bytes.begin() + kFrameHeaderBytes, bytes.end()));
  }
  // True: the other side has closed, and nothing is left to read.
  bool at_end() {
    std::byte byte;
    const ssize_t count = ::recv(fd_.get(), &byte, 1, 0);
    return count == 0 || (count < 0 && errno == ECONNRESET);
  }
  void close() { fd_ = UniqueFd(); }
  int fd() const { return fd_.get(); }

  // Either side of a handshake without a token.
  bool greet_as_client() {
    if (!send(frame_bytes({.op = kOpHello}, encode_hello({})))) return false;
    const auto greeting = receive();
    return greeting && greeting->first.op == kOpHello && greeting->first.status == FrameStatus::kOk;
  }
  bool greet_as_server() {
    const auto hello = receive();
    return hello && hello->first.op == kOpHello && send(frame_bytes({.op = kOpHello}, encode_greeting({})));
  }

 private:
  bool receive_exactly(MutableByteSpan to) {
    return to.empty() || ::recv(fd_.get(), to.data(), to.size(), MSG_WAITALL) == static_cast<ssize_t>(to.size());
  }

  Carrier carrier_;
  UniqueFd fd_;
};

// Plays the server for one connection: `script` runs on a thread of its own, which ends with this object.
class ScriptedServer {
 public:
  using Script = std::function<void(RawPeer& peer)>;

  ScriptedServer(Carrier carrier, Script script) {
    address_.carrier = carrier;
    if (carrier == Carrier::kUnix) {
      folder_ = std::make_unique<TemporaryFolder>(TemporaryFolder::create().value());
      address_.path = (folder_->path() / "s").string();
      listener_ = UniqueFd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
      sockaddr_un name{};
      name.sun_family = AF_UNIX;
      std::strcpy(name.sun_path, address_.path.c_str());
      NMC_ASSERT(::bind(listener_.get(), reinterpret_cast<sockaddr*>(&name), sizeof name) == 0);
    } else {
      address_.host = "127.0.0.1";
      listener_ = UniqueFd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
      sockaddr_in name{};
      name.sin_family = AF_INET;
      name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
      socklen_t size = sizeof name;
      NMC_ASSERT(::bind(listener_.get(), reinterpret_cast<sockaddr*>(&name), size) == 0);
      NMC_ASSERT(::getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&name), &size) == 0);
      address_.port = ntohs(name.sin_port);
    }
    NMC_ASSERT(::listen(listener_.get(), 0) == 0);
    const timeval patience{10, 0};
    (void)::setsockopt(listener_.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    if (!script) return;
    thread_ = std::thread([this, carrier, script = std::move(script)] {
      UniqueFd fd(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
      if (!fd) return;
      RawPeer peer(carrier, std::move(fd));
      script(peer);
    });
  }
  ~ScriptedServer() {
    if (thread_.joinable()) thread_.join();
  }

  const Address& address() const { return address_; }

 private:
  Address address_;
  std::unique_ptr<TemporaryFolder> folder_;
  UniqueFd listener_;
  std::thread thread_;
};

}  // namespace nmc::net
