// Messages of the store's protocol as hostile or broken clients might send them, to a master that runs in this process:
// over the Unix socket and over TCP, one after another on either connection. The master must answer each, with an error
// or with what its operation says, and go on serving.
//
// The input is a list of messages: carrier and op u8 (the highest bit: TCP), body length u16, payload length u8, body.
// The payload is as long as told, of zeros. With the bit below the highest one, what a client knows and a fuzzer can't
// guess is mended in the body: the identity of its pin table, and the place that it reserved last.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/files.h"
#include "base/log.h"
#include "net/body.h"
#include "net/handshake.h"
#include "store/node_server.h"
#include "store/protocol.h"

namespace nmc::store {
namespace {

using Bytes = std::vector<std::byte>;

constexpr std::size_t kMessagesMax = 8;
constexpr std::uint64_t kMountBytesMax = 64 << 10;

void require(bool condition, const char* what) { NMC_ASSERT(condition, "{}", what); }

// A client's connection, used by hand.
class Peer {
 public:
  static Peer over_unix(const Path& path) {
    Peer peer(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0), true);
    sockaddr_un name{};
    name.sun_family = AF_UNIX;
    std::strncpy(name.sun_path, path.c_str(), sizeof name.sun_path - 1);
    require(::connect(peer.fd_.get(), reinterpret_cast<sockaddr*>(&name), sizeof name) == 0, "the master listens");
    peer.greet();
    return peer;
  }
  static Peer over_tcp(std::uint16_t port) {
    Peer peer(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), false);
    sockaddr_in name{};
    name.sin_family = AF_INET;
    name.sin_port = htons(port);
    name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const int on = 1;
    (void)::setsockopt(peer.fd_.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    require(::connect(peer.fd_.get(), reinterpret_cast<sockaddr*>(&name), sizeof name) == 0, "the master listens");
    peer.greet();
    return peer;
  }

  struct Reply {
    net::FrameHeader header;
    Bytes body, payload;
  };
  Reply call(std::uint16_t op, net::ByteSpan body, std::size_t payload_bytes) {
    const net::FrameHeader header{.op = op,
                                  .body_bytes = static_cast<std::uint32_t>(body.size()),
                                  .request_id = ++id_,
                                  .payload_bytes = payload_bytes};
    const net::FrameHeaderBytes head = net::encode_frame_header(header);
    Bytes message(head.begin(), head.end());
    message.insert(message.end(), body.begin(), body.end());
    message.resize(message.size() + payload_bytes);
    require(::send(fd_.get(), message.data(), message.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(message.size()),
            "the master takes a message");
    Reply reply = receive();
    require(reply.header.op == op && reply.header.request_id == header.request_id, "the answer is to this message");
    return reply;
  }

 private:
  Peer(int fd, bool datagrams) : fd_(fd), datagrams_(datagrams) {
    const timeval patience{10, 0};
    (void)::setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  }

  void greet() {
    id_ = UINT64_MAX;  // so that the hello's is 0
    const Bytes hello = net::encode_hello({});
    require(call(net::kOpHello, hello, 0).header.status == net::FrameStatus::kOk, "a greeting");
  }

  Reply receive() {
    Reply reply;
    if (datagrams_) {
      static Bytes buffer(net::kDatagramBytesMax);
      iovec piece{buffer.data(), buffer.size()};
      alignas(cmsghdr) std::array<char, 256> control;
      msghdr message{};
      message.msg_iov = &piece;
      message.msg_iovlen = 1;
      message.msg_control = control.data();
      message.msg_controllen = control.size();
      const ssize_t count = retry_on_eintr([&] { return ::recvmsg(fd_.get(), &message, MSG_CMSG_CLOEXEC); });
      require(count > 0, "the master answers");
      close_files(message);
      const auto frame = net::split_datagram(net::ByteSpan(buffer).first(static_cast<std::size_t>(count)));
      require(frame.has_value(), "the answer is a frame");
      reply.header = frame->header;
      reply.body.assign(frame->body.begin(), frame->body.end());
      reply.payload.assign(frame->payload.begin(), frame->payload.end());
      return reply;
    }
    net::FrameHeaderBytes head;
    take(head);
    const auto header = net::decode_frame_header(head, {});
    require(header.has_value(), "the answer is a frame");
    require(header->payload_bytes < (64u << 20), "the payload is of objects there are");
    reply.header = *header;
    reply.body.resize(header->body_bytes);
    reply.payload.resize(header->payload_bytes);
    take(reply.body);
    take(reply.payload);
    return reply;
  }
  void take(std::span<std::byte> to) {
    while (!to.empty()) {  // the fuzzer's alarms interrupt
      const ssize_t count = retry_on_eintr([&] { return ::recv(fd_.get(), to.data(), to.size(), MSG_WAITALL); });
      require(count > 0, "the answer comes whole");
      to = to.subspan(static_cast<std::size_t>(count));
    }
  }
  static void close_files(msghdr& message) {
    for (cmsghdr* part = CMSG_FIRSTHDR(&message); part != nullptr; part = CMSG_NXTHDR(&message, part)) {
      if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
      for (std::size_t at = 0; at + sizeof(int) <= part->cmsg_len - CMSG_LEN(0); at += sizeof(int)) {
        int fd;
        std::memcpy(&fd, CMSG_DATA(part) + at, sizeof fd);
        const UniqueFd owned(fd);
      }
    }
  }

  UniqueFd fd_;
  const bool datagrams_;
  std::uint64_t id_ = 0;
};

class Target {
 public:
  Target() {
    NodeServerOptions options;
    options.folder = folder_.path() / "store";
    options.core.entries = {256, 256};
    options.core.lease = Nanos::zero();
    options.tcp_host = "127.0.0.1";
    options.parked_lifetime = Nanos::zero();
    server_ = NodeServer::start(options).value();
    server_->core().mount("own", 256 << 10, 0).value();
  }

  void run(std::span<const std::uint8_t> input) {
    if (changed_) restore();
    for (std::size_t count = 0; count < kMessagesMax && input.size() >= 4; ++count) {
      const bool tcp = (input[0] & 0x80) != 0;
      const std::uint16_t op = input[0] & 0x3f;
      const bool mended = (input[0] & 0x40) != 0;
      const std::size_t body_bytes = std::min<std::size_t>(input[1] | input[2] << 8, input.size() - 4);
      const std::size_t payload_bytes = input[3];
      const auto* start = reinterpret_cast<const std::byte*>(input.data()) + 4;
      Bytes body(start, start + body_bytes);
      if (mended) mend(static_cast<Op>(op), body);
      send(tcp, op, std::move(body), payload_bytes);
      input = input.subspan(4 + body_bytes);
    }
  }

 private:
  void send(bool tcp, std::uint16_t op, Bytes body, std::size_t payload_bytes) {
    const Op what = static_cast<Op>(op);
    if (what == Op::kMount) tame_mount(body);
    std::optional<Peer>& peer = tcp ? tcp_ : unix_;
    if (!peer)
      peer.emplace(tcp ? Peer::over_tcp(server_->tcp_port()) : Peer::over_unix(folder_.path() / "store/socket"));
    const Peer::Reply reply = peer->call(op, body, payload_bytes);
    // Whoever has joined starts anew with the next input.
    joined_ = joined_ || what == Op::kJoin || what == Op::kAttach;
    changed_ = changed_ || joined_ || what == Op::kPut || what == Op::kRemove || what == Op::kRemoveMatching;
    check(what, body, reply);
    remember(what, reply);
  }

  template <typename Number>
  static void patch(Bytes& body, std::size_t at, Number number) {
    if (body.size() >= at + sizeof number) std::memcpy(body.data() + at, &number, sizeof number);
  }

  void mend(Op op, Bytes& body) {
    const PinTable* table = server_->core().find_client(client_);
    const std::uint64_t identity = table == nullptr ? 0 : table->identity();
    if (op == Op::kAttach) {
      patch(body, 0, client_);
      patch(body, 4, identity);
    } else if (op == Op::kCommit || op == Op::kAbort) {
      constexpr std::size_t kOptions = 1 + 4 + 4;  // without preferred segments
      const std::size_t head = op == Op::kCommit ? kOptions + 8 + 1 + 4 : 8 + 4;
      patch(body, op == Op::kCommit ? kOptions : 0, identity);
      patch(body, head, place_.entry);
      patch(body, head + 4, place_.generation);
    }
  }

  void remember(Op op, const Peer::Reply& reply) {
    if (reply.header.status != net::FrameStatus::kOk) return;
    net::BodyReader answer(reply.body);
    if (op == Op::kJoin) client_ = answer.get_u32("client");
    if (op == Op::kReserve && answer.get_u32("code") == 0 && answer.get_u8("copies") > 0) place_ = get_place(answer);
  }

  // Memory for a segment is really taken: a small piece, or more than there is anywhere.
  static void tame_mount(Bytes& body) {
    std::uint64_t bytes = 0;
    if (body.size() < sizeof bytes) return;
    std::memcpy(&bytes, body.data(), sizeof bytes);
    if (bytes < std::uint64_t{1} << 50) bytes %= kMountBytesMax;
    std::memcpy(body.data(), &bytes, sizeof bytes);
  }

  static void check(Op op, const Bytes& request, const Peer::Reply& reply) {
    if (reply.header.status == net::FrameStatus::kError) {
      require(!net::decode_error(reply.body).message.empty(), "an error says why");
      return;
    }
    net::BodyReader asked(request), answer(reply.body);
    if (op == Op::kExists || op == Op::kSizes) {
      const std::uint32_t count = asked.get_u32("keys");
      for (std::uint32_t i = 0; i < count; ++i) {
        if (op == Op::kExists)
          require(answer.get_u32("exists") <= 1, "there or not");
        else
          require(static_cast<Outcome>(answer.get_u64("size")) <= 1 << 20, "a size of something there is");
      }
    } else if (op == Op::kRead) {
      const std::uint32_t count = asked.get_u32("reads");
      std::uint64_t total = 0;
      for (std::uint32_t i = 0; i < count; ++i) {
        const ReadAnswer one = get_answer(answer);
        require(one.outcome <= static_cast<Outcome>(one.bytes), "no more comes than the object has");
        if (one.outcome > 0) total += static_cast<std::uint64_t>(one.outcome);
      }
      require(total == reply.payload.size(), "the bytes that were announced");
    } else {
      return;
    }
    require(answer.finish().has_value(), "an answer for each, and nothing more");
  }

  // The objects that messages may name, and nobody joined.
  void restore() {
    if (joined_) {
      unix_.reset();
      tcp_.reset();
    }
    joined_ = changed_ = false;
    (void)server_->remove_all(true);
    for (int i = 0; i < 3; ++i) {
      const std::string key = "key" + std::to_string(i);
      const auto space = server_->core().reserve({.bytes = 40u + 10u * static_cast<unsigned>(i)});
      if (!space) return;  // what somebody reserved comes back with his end
      std::memset(space->bytes.data(), 'a' + i, space->bytes.size());
      MasterCore::Commit commit;
      commit.entry = space->entry;
      commit.generation = space->generation;
      commit.key = key;
      if (!server_->core().commit(commit)) server_->core().abort(space->entry, space->generation);
    }
  }

  TemporaryFolder folder_ = TemporaryFolder::create("nmc-fuzz").value();
  std::unique_ptr<NodeServer> server_;
  std::optional<Peer> unix_, tcp_;
  std::uint32_t client_ = 0;  // who joined last
  PlaceOnWire place_;         // reserved last
  bool joined_ = false;
  bool changed_ = true;  // since restore()
};

}  // namespace
}  // namespace nmc::store

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  nmc::set_log_level(nmc::LogLevel::kOff);
  static nmc::store::Target target;
  target.run({data, size});
  return 0;
}
