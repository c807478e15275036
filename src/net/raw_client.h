// For tests: a blocking TCP client on loopback that sends exactly the bytes it is told to, in exactly the pieces. Every
// wait ends after ten seconds, as an empty or short result that the test then reports.
#pragma once

#include <arpa/inet.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <thread>

#include "base/check.h"
#include "base/syscall.h"

namespace nmc::net {

class RawClient {
 public:
  // `receive_buffer`: bytes the kernel may hold for us, 0: its choice.
  explicit RawClient(std::uint16_t port, int receive_buffer = 0) : server_port_(port) {
    fd_ = UniqueFd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    NMC_ASSERT(fd_);
    const timeval ten_seconds{10, 0};
    set(SOL_SOCKET, SO_RCVTIMEO, ten_seconds);
    set(SOL_SOCKET, SO_SNDTIMEO, ten_seconds);
    set(IPPROTO_TCP, TCP_NODELAY, 1);
    if (receive_buffer > 0) set(SOL_SOCKET, SO_RCVBUF, receive_buffer);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connected_ = ::connect(fd_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
  }

  bool connected() const { return connected_; }

  // False when the server had closed.
  bool send(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t count = ::send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (count <= 0) return false;
      bytes.remove_prefix(static_cast<std::size_t>(count));
    }
    return true;
  }

  // Each piece only after the server has read the one before.
  bool send_in_pieces(std::string_view bytes, std::size_t piece) {
    for (; !bytes.empty(); bytes.remove_prefix(std::min(piece, bytes.size()))) {
      if (!send(bytes.substr(0, piece))) return false;
      wait_until_read();
    }
    return true;
  }

  // Until the answer holds `needle` (then up to and including it), the server closes or time is up.
  std::string read_until(std::string_view needle) {
    for (;;) {
      const std::size_t at = received_.find(needle);
      if (at != std::string::npos) return take(at + needle.size());
      if (!receive()) return take(received_.size());
    }
  }
  std::string read_bytes(std::size_t count) {
    while (received_.size() < count && receive()) {
    }
    return take(std::min(count, received_.size()));
  }
  std::string read_to_end() {
    while (receive()) {
    }
    return take(received_.size());
  }
  // True when the server closed (or reset) the connection and nothing is left to read.
  bool at_end() { return received_.empty() && !receive() && ended_; }

  // One answer with a Content-Length or chunks; chunks are joined.
  struct Answer {
    int status = 0;  // 0: there was none
    std::string head;
    std::string body;
    bool whole = false;  // its end was seen
  };
  Answer read_answer(bool head_only = false) {
    Answer answer;
    answer.head = read_until("\r\n\r\n");
    if (!answer.head.starts_with("HTTP/1.1 ")) return answer;
    answer.status = std::stoi(answer.head.substr(9, 3));
    if (head_only) {
      answer.whole = true;
    } else if (const auto length = header(answer.head, "Content-Length")) {
      const std::size_t bytes = std::stoull(*length);
      answer.body = read_bytes(bytes);
      answer.whole = answer.body.size() == bytes;
    } else if (header(answer.head, "Transfer-Encoding")) {
      read_chunks(answer);
    } else {
      answer.body = read_to_end();
      answer.whole = ended_;
    }
    return answer;
  }
  // The next chunk's bytes; nullopt at the end of the body or of the connection.
  std::optional<std::string> read_chunk() {
    const std::string size_line = read_until("\r\n");
    if (!size_line.ends_with("\r\n")) return std::nullopt;
    const std::size_t size = std::stoull(size_line, nullptr, 16);
    std::string chunk = read_bytes(size);
    if (read_until("\r\n") != "\r\n" || chunk.size() != size || size == 0) return std::nullopt;
    return chunk;
  }

  static std::optional<std::string> header(std::string_view head, std::string_view name) {
    const std::string key = "\r\n" + std::string(name) + ": ";
    const std::size_t at = head.find(key);
    if (at == std::string_view::npos) return std::nullopt;
    const std::size_t begin = at + key.size();
    return std::string(head.substr(begin, head.find("\r\n", begin) - begin));
  }

  void half_close() { ::shutdown(fd_.get(), SHUT_WR); }
  void close() { fd_ = UniqueFd(); }
  void reset() {
    set(SOL_SOCKET, SO_LINGER, linger{1, 0});
    close();
  }

 private:
  template <typename T>
  void set(int level, int option, const T& value) {
    (void)::setsockopt(fd_.get(), level, option, &value, sizeof value);
  }

  bool receive() {
    if (ended_) return false;
    char bytes[16384];
    const ssize_t count = ::recv(fd_.get(), bytes, sizeof bytes, 0);
    if (count > 0) {
      received_.append(bytes, static_cast<std::size_t>(count));
      return true;
    }
    ended_ = count == 0 || errno == ECONNRESET;
    return false;
  }

  std::string take(std::size_t count) {
    std::string bytes = received_.substr(0, count);
    received_.erase(0, count);
    return bytes;
  }

  void read_chunks(Answer& answer) {
    for (;;) {
      const std::string size_line = read_until("\r\n");
      if (!size_line.ends_with("\r\n")) return;
      const std::size_t size = std::stoull(size_line, nullptr, 16);
      answer.body += read_bytes(size);
      if (read_until("\r\n") != "\r\n") return;
      if (size == 0) break;
    }
    answer.whole = true;
  }

  // Asks the kernel (sock_diag) for the bytes that wait in the server's end of this connection.
  bool server_has_unread() const {
    sockaddr_in own{};
    socklen_t size = sizeof own;
    ::getsockname(fd_.get(), reinterpret_cast<sockaddr*>(&own), &size);
    struct {
      nlmsghdr header;
      inet_diag_req_v2 query;
    } ask{};
    ask.header.nlmsg_len = sizeof ask;
    ask.header.nlmsg_type = SOCK_DIAG_BY_FAMILY;
    ask.header.nlmsg_flags = NLM_F_REQUEST;
    ask.query.sdiag_family = AF_INET;
    ask.query.sdiag_protocol = IPPROTO_TCP;
    ask.query.idiag_states = ~0u;
    ask.query.id.idiag_sport = htons(server_port_);
    ask.query.id.idiag_dport = own.sin_port;
    ask.query.id.idiag_src[0] = ask.query.id.idiag_dst[0] = htonl(INADDR_LOOPBACK);
    ask.query.id.idiag_cookie[0] = ask.query.id.idiag_cookie[1] = INET_DIAG_NOCOOKIE;
    const UniqueFd kernel(::socket(AF_NETLINK, SOCK_DGRAM | SOCK_CLOEXEC, NETLINK_SOCK_DIAG));
    struct {
      nlmsghdr header;
      inet_diag_msg found;
      char attributes[512];
    } answer{};
    if (::send(kernel.get(), &ask, sizeof ask, 0) < 0) return false;
    const ssize_t count = ::recv(kernel.get(), &answer, sizeof answer, 0);
    // An error message instead: there is no such connection any more.
    return count > 0 && answer.header.nlmsg_type == SOCK_DIAG_BY_FAMILY && answer.found.idiag_rqueue != 0;
  }
  void wait_until_read() const {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    while (server_has_unread() && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
  }

  std::uint16_t server_port_;
  UniqueFd fd_;
  bool connected_ = false;
  bool ended_ = false;
  std::string received_;
};

}  // namespace nmc::net
