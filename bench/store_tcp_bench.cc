// What a client's read and put over TCP reach beside a plain socket that moves as many bytes, in one run over loopback:
// rounds of all cases take turns, each reports its median, and the ratio is the median of the rounds' ratios. CPU is
// that of both ends: on a machine that others use, too, it tells more than the time.
//
//   store_tcp_bench [--rounds N]
//
// The plain socket does the least that a get or a put can: one connection, 32 bytes one way, the value the other,
// send() and recv() from and into memory that is already there. Its server has a thread, as the store's TCP sessions
// have.
#include <arpa/inet.h>
#include <fmt/core.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/check.h"
#include "base/files.h"
#include "base/log.h"
#include "base/syscall.h"
#include "store/client.h"
#include "store/node_server.h"

namespace nmc::store {
namespace {

using Bytes = std::vector<std::byte>;

// Of all threads of this process, both ends of the connections that is.
double cpu_us() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto us = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) * 1e6 + static_cast<double>(time.tv_usec);
  };
  return us(usage.ru_utime) + us(usage.ru_stime);
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

void send_all(int fd, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    NMC_ASSERT(sent > 0, "errno={}", errno);
    bytes = bytes.subspan(static_cast<std::size_t>(sent));
  }
}

bool receive_all(int fd, std::span<std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t received = ::recv(fd, bytes.data(), bytes.size(), 0);
    if (received <= 0) return false;
    bytes = bytes.subspan(static_cast<std::size_t>(received));
  }
  return true;
}

// A request is 32 bytes: how many the client wants, and how many it sends along.
struct RawRequest {
  std::uint64_t wanted = 0, sent = 0;
  std::array<std::byte, 16> padding{};
};

class RawServer {
 public:
  explicit RawServer(std::size_t bytes_max) : value_(bytes_max, std::byte{7}) {
    listener_ = UniqueFd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in name{};
    name.sin_family = AF_INET;
    name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof name;
    NMC_ASSERT(::bind(listener_.get(), reinterpret_cast<sockaddr*>(&name), sizeof name) == 0);
    NMC_ASSERT(::listen(listener_.get(), 1) == 0);
    NMC_ASSERT(::getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&name), &size) == 0);
    thread_ = std::thread([this] { serve(); });
    client_ = UniqueFd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    NMC_ASSERT(::connect(client_.get(), reinterpret_cast<sockaddr*>(&name), sizeof name) == 0);
    no_delay(client_.get());
  }
  ~RawServer() {
    client_ = UniqueFd();
    thread_.join();
  }

  void get(std::span<std::byte> to) {
    const RawRequest request{.wanted = to.size()};
    send_all(client_.get(), std::as_bytes(std::span(&request, 1)));
    NMC_ASSERT(receive_all(client_.get(), to));
  }
  void put(std::span<const std::byte> from) {
    const RawRequest request{.wanted = 4, .sent = from.size()};
    send_all(client_.get(), std::as_bytes(std::span(&request, 1)));
    send_all(client_.get(), from);
    std::array<std::byte, 4> answer;
    NMC_ASSERT(receive_all(client_.get(), answer));
  }

 private:
  static void no_delay(int fd) {
    const int on = 1;
    (void)::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  }
  void serve() {
    const UniqueFd fd(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    no_delay(fd.get());
    RawRequest request;
    while (receive_all(fd.get(), std::as_writable_bytes(std::span(&request, 1)))) {
      if (!receive_all(fd.get(), std::span(value_).first(request.sent))) return;
      send_all(fd.get(), std::span(value_).first(request.wanted));
    }
  }

  Bytes value_;
  UniqueFd listener_, client_;
  std::thread thread_;
};

class Bench {
 public:
  static constexpr std::size_t kLargest = 64 << 20;

  explicit Bench(int rounds) : rounds_(rounds), raw_(kLargest), buffer_(kLargest, std::byte{1}) {
    NodeServerOptions options;
    options.folder = folder_.path() / "store";
    options.core.entries = {1 << 10, 1 << 16};
    options.tcp_host = "127.0.0.1";
    server_ = NodeServer::start(options).value();
    server_->core().mount("bench", std::uint64_t{1} << 30, 0).value();
    client_ =
        Client::connect({.server = fmt::format("127.0.0.1:{}", server_->tcp_port()), .shared_memory = false}).value();
  }

  void run() {
    for (const std::size_t size : {4u << 10, 64u << 10, 1u << 20, 4u << 20, 16u << 20, 64u << 20}) measure(size);
  }

 private:
  struct Case {
    const char* name;
    std::function<void(std::span<std::byte>)> move;
    std::size_t beside;                     // the case that it is compared with
    std::vector<double> us = {}, cpu = {};  // a call
  };

  void measure(std::size_t size) {
    const std::string key = fmt::format("get/{}", size), put_key = fmt::format("put/{}", size);
    const std::span<std::byte> value = std::span(buffer_).first(size);
    NMC_ASSERT(client_->put(key, value, {.hard_pin = true}) == 0);
    std::vector<Case> cases = {
        {"socket get", [&](std::span<std::byte> bytes) { raw_.get(bytes); }, 0},
        {"store read", [&](std::span<std::byte> bytes) { NMC_ASSERT(client_->read(key, bytes) > 0); }, 0},
        {"socket put", [&](std::span<std::byte> bytes) { raw_.put(bytes); }, 2},
        {"store put",
         [&](std::span<std::byte> bytes) { NMC_ASSERT(client_->put(put_key, bytes, {.replace = true}) == 0); }, 2},
    };
    const int repeats = static_cast<int>(std::clamp<std::size_t>((64u << 20) / size, 2, 500));
    for (int round = -1; round < rounds_; ++round) {  // one that isn't counted
      for (Case& one : cases) {
        const double cpu_before = cpu_us();
        const auto start = std::chrono::steady_clock::now();
        for (int r = 0; r < repeats; ++r) one.move(value);
        const double us =
            std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count() / repeats;
        if (round < 0) continue;
        one.us.push_back(us);
        one.cpu.push_back((cpu_us() - cpu_before) / repeats);
      }
    }
    for (const Case& one : cases) {
      std::vector<double> ratios;
      for (std::size_t i = 0; i < one.us.size(); ++i) ratios.push_back(cases[one.beside].us[i] / one.us[i]);
      fmt::print("{:>6} KiB  {:<10} {:9.1f} us  {:5.2f} GB/s  {:.2f} of the socket  {:9.1f} us of CPU\n", size >> 10,
                 one.name, median(one.us), static_cast<double>(size) / median(one.us) / 1e3, median(ratios),
                 median(one.cpu));
    }
    const std::array<std::string_view, 2> keys = {key, put_key};
    std::array<Outcome, 2> outcomes{};
    client_->remove(keys, true, outcomes);
  }

  const int rounds_;
  RawServer raw_;
  Bytes buffer_;
  TemporaryFolder folder_ = TemporaryFolder::create("nmc-tcp-bench").value();
  std::unique_ptr<NodeServer> server_;
  std::unique_ptr<Client> client_;
};

}  // namespace
}  // namespace nmc::store

int main(int argc, char** argv) {
  int rounds = 15;
  if (argc == 3 && std::string_view(argv[1]) == "--rounds") rounds = std::atoi(argv[2]);
  if ((argc != 1 && argc != 3) || rounds < 1) {
    fmt::print(stderr, "usage: store_tcp_bench [--rounds N]\n");
    return 2;
  }
  ::setenv("TMPDIR", "/dev/shm", 0);  // the store belongs in memory
  nmc::store::Bench(rounds).run();
}
