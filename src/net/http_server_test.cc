#include "net/http_server.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <deque>
#include <filesystem>
#include <future>

#include "base/mutex.h"
#include "net/raw_client.h"

namespace nmc::net {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

// "/hold" is answered by the test, "/stream" with three chunks, anything else with a description of the request.
class HttpServerTest : public ::testing::Test {
 protected:
  struct Held {
    std::shared_ptr<HttpExchange> exchange;
    std::shared_ptr<std::promise<void>> closed = std::make_shared<std::promise<void>>();
    bool closes_within(Nanos time) { return closed->get_future().wait_for(time) == std::future_status::ready; }
  };

  void start() {
    auto server = HttpServer::start(options_, [this](HttpRequest request, std::shared_ptr<HttpExchange> exchange) {
      handle(std::move(request), std::move(exchange));
    });
    ASSERT_TRUE(server.has_value()) << server.error().to_string();
    server_ = std::move(*server);
  }
  RawClient client(int receive_buffer = 0) { return RawClient(server_->port(), receive_buffer); }

  // The next request to "/hold".
  Held next_held() {
    const auto deadline = std::chrono::steady_clock::now() + seconds(10);
    MutexLock lock(mutex_);
    while (held_.empty()) {
      if (!arrived_.wait_until(mutex_, deadline)) return {};
    }
    Held held = std::move(held_.front());
    held_.pop_front();
    return held;
  }

  HttpServerOptions options_;
  std::unique_ptr<HttpServer> server_;

 private:
  void handle(HttpRequest request, std::shared_ptr<HttpExchange> exchange) {
    if (request.path == "/hold") {
      Held held{exchange};
      exchange->on_closed([closed = held.closed] { closed->set_value(); });
      MutexLock lock(mutex_);
      held_.push_back(std::move(held));
      arrived_.notify_all();
    } else if (request.path == "/stream") {
      exchange->begin_stream({});
      for (const char* piece : {"one ", "two ", "three"}) exchange->write(piece);
      exchange->finish();
    } else {
      exchange->respond({.content_type = "text/plain",
                         .body = fmt::format("{} {} [{}]", request.method, request.target, request.body)});
    }
  }

  Mutex mutex_;
  CondVar arrived_;
  std::deque<Held> held_ NMC_GUARDED_BY(mutex_);
};

// A program that is started meanwhile must not hold the port, nor a client's connection.
TEST_F(HttpServerTest, NothingOfItIsInherited) {
  start();
  RawClient connected = client();
  ASSERT_TRUE(connected.send("GET /hold HTTP/1.1\r\nHost: x\r\n\r\n"));
  const Held held = next_held();  // so it was accepted
  int sockets = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    const int fd = std::stoi(entry.path().filename().string());
    int type = 0;
    socklen_t size = sizeof type;
    if (::getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) != 0 || type != SOCK_STREAM) continue;
    ++sockets;
    EXPECT_NE(::fcntl(fd, F_GETFD) & FD_CLOEXEC, 0) << fd;
  }
  EXPECT_GE(sockets, 3);
}

// What goes in and what comes back. Every case runs whole and in pieces of 1 to 7 bytes.
struct RawCase {
  const char* name;
  std::string request;
  int status;        // of the first answer; 0: the server closes without a word
  const char* body;  // nullptr: not compared
  bool stays_open;
};

const RawCase kRawCases[] = {
    {"get", "GET /a HTTP/1.1\r\nHost: x\r\n\r\n", 200, "GET /a []", true},
    {"no host", "GET /a HTTP/1.1\r\n\r\n", 200, "GET /a []", true},
    {"asks to close", "GET /a HTTP/1.1\r\nConnection: close\r\n\r\n", 200, "GET /a []", false},
    {"http 1.0", "GET /a HTTP/1.0\r\n\r\n", 200, "GET /a []", false},
    {"http 1.0 kept", "GET /a HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", 200, "GET /a []", true},
    {"body", "POST /b HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello", 200, "POST /b [hello]", true},
    {"empty body", "POST /b HTTP/1.1\r\nContent-Length: 0\r\n\r\n", 200, "POST /b []", true},
    {"chunked body",
     "POST /b HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nhel\r\n2;x=y\r\nlo\r\n0\r\nT: z\r\n\r\n", 200,
     "POST /b [hello]", true},
    {"stream", "GET /stream HTTP/1.1\r\n\r\n", 200, "one two three", true},
    {"stream to http 1.0", "GET /stream HTTP/1.0\r\n\r\n", 200, "one two three", false},
    {"absolute target", "GET http://h/a HTTP/1.1\r\n\r\n", 200, "GET http://h/a []", true},
    {"folded header", "GET /a HTTP/1.1\r\nX: a\r\n b\r\n\r\n", 200, "GET /a []", true},
    {"not http", "hello\r\n\r\n", 400, nullptr, false},
    {"binary", std::string("\0\x01\xff\r\n\r\n", 7), 400, nullptr, false},
    {"tls hello", std::string("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 11), 400, nullptr, false},
    {"http 2 preface", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505, nullptr, false},
    {"no target", "GET  HTTP/1.1\r\n\r\n", 400, nullptr, false},
    {"bad header name", "GET / HTTP/1.1\r\nA B: c\r\n\r\n", 400, nullptr, false},
    {"header without colon", "GET / HTTP/1.1\r\nabc\r\n\r\n", 400, nullptr, false},
    {"control in header", std::string("GET / HTTP/1.1\r\nA: \x01\r\n\r\n"), 400, nullptr, false},
    {"negative length", "POST / HTTP/1.1\r\nContent-Length: -1\r\n\r\n", 400, nullptr, false},
    {"two lengths", "POST / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab", 400, nullptr, false},
    {"length beyond 64 bits", "POST / HTTP/1.1\r\nContent-Length: 99999999999999999999999\r\n\r\n", 400, nullptr,
     false},
    {"length and chunks", "POST / HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400,
     nullptr, false},
    {"chunk size not hex", "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n", 400, nullptr, false},
    {"negative chunk size", "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\n\r\n", 400, nullptr, false},
    {"chunk size beyond 64 bits", "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n", 400,
     nullptr, false},
    {"huge chunk size", "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nfffffffffffffff0\r\n", 413, nullptr,
     false},
    {"chunk without its end", "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nabX\r\n0\r\n\r\n", 400,
     nullptr, false},
    {"declares a gigabyte", "POST / HTTP/1.1\r\nContent-Length: 1073741824\r\n\r\n0123456789", 413, nullptr, false},
    {"expects the unknown", "POST / HTTP/1.1\r\nExpect: tea\r\nContent-Length: 1\r\n\r\na", 417, nullptr, false},
};

TEST_F(HttpServerTest, AnswersRawRequestsWholeAndInPieces) {
  start();
  for (const RawCase& c : kRawCases) {
    for (std::size_t piece = 0; piece <= 7; ++piece) {
      SCOPED_TRACE(fmt::format("{}, {}", c.name, piece == 0 ? "whole" : fmt::format("pieces of {}", piece)));
      RawClient peer = client();
      // A refused request's rest may not be taken any more.
      (void)peer.send_in_pieces(c.request, piece == 0 ? c.request.size() : piece);
      const auto answer = peer.read_answer();
      EXPECT_EQ(answer.status, c.status);
      EXPECT_TRUE(answer.whole);
      if (c.body != nullptr) {
        EXPECT_EQ(answer.body, c.body);
      }
      if (c.stays_open) {
        peer.send("GET /again HTTP/1.1\r\n\r\n");
        EXPECT_EQ(peer.read_answer().body, "GET /again []");
      } else {
        EXPECT_TRUE(peer.at_end());
      }
    }
  }
}

TEST_F(HttpServerTest, ServesPipelinedRequestsInOrder) {
  start();
  RawClient peer = client();
  peer.send("GET /hold HTTP/1.1\r\n\r\nGET /stream HTTP/1.1\r\n\r\nPOST /c HTTP/1.1\r\nContent-Length: 1\r\n\r\nx");
  next_held().exchange->respond({.body = "first"});
  EXPECT_EQ(peer.read_answer().body, "first");
  EXPECT_EQ(peer.read_answer().body, "one two three");
  EXPECT_EQ(peer.read_answer().body, "POST /c [x]");
}

TEST_F(HttpServerTest, ReadsAheadOnlySoFar) {
  start();
  RawClient peer = client();
  peer.send("GET /hold HTTP/1.1\r\n\r\n");
  Held held = next_held();
  // More than is read ahead, more than any single buffer of the server.
  std::string flood;
  for (int i = 0; i < 10'000; ++i) flood += "GET /x HTTP/1.1\r\n\r\n";
  std::thread sender([&] { peer.send(flood); });
  held.exchange->respond({.body = "held"});
  EXPECT_EQ(peer.read_answer().body, "held");
  int answers = 0;
  while (answers < 10'000 && peer.read_answer().status == 200) ++answers;
  sender.join();
  EXPECT_EQ(answers, 10'000);
}

TEST_F(HttpServerTest, RefusesLargeBodiesWithoutReadingThem) {
  options_.max_body_bytes = 1000;
  start();
  RawClient declared = client();
  declared.send("POST / HTTP/1.1\r\nContent-Length: 1001\r\n\r\n");  // not a byte of it
  EXPECT_EQ(declared.read_answer().status, 413);
  RawClient chunked = client();
  chunked.send("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n");
  for (int i = 0; i < 20; ++i) chunked.send("64\r\n" + std::string(100, 'x') + "\r\n");
  EXPECT_EQ(chunked.read_answer().status, 413);
  RawClient largest = client();
  largest.send("POST / HTTP/1.1\r\nContent-Length: 1000\r\n\r\n" + std::string(1000, 'x'));
  EXPECT_EQ(largest.read_answer().status, 200);
}

// The answer must reach a client that sends its whole body before it reads.
TEST_F(HttpServerTest, RefusalReachesAClientThatSendsOn) {
  start();
  RawClient peer = client();
  peer.send("POST / HTTP/1.1\r\nContent-Length: 50000000\r\n\r\n");
  const std::string piece(1 << 20, 'x');
  for (int i = 0; i < 47; ++i) {
    if (!peer.send(piece)) break;
  }
  EXPECT_EQ(peer.read_answer().status, 413);
}

TEST_F(HttpServerTest, RefusesHeaderFloods) {
  start();
  std::string many = "GET / HTTP/1.1\r\n";
  for (int i = 0; i < 10'000; ++i) many += fmt::format("X-{}: y\r\n", i);
  for (const std::string& flood :
       {many, "GET / HTTP/1.1\r\nX: " + std::string(100'000, 'y'), "GET /" + std::string(100'000, 'a')}) {
    RawClient peer = client();
    peer.send(flood);
    EXPECT_EQ(peer.read_answer().status, 431);
  }
  RawClient fits = client();
  fits.send("GET / HTTP/1.1\r\nX: " + std::string(60'000, 'y') + "\r\n\r\n");
  EXPECT_EQ(fits.read_answer().status, 200);
}

TEST_F(HttpServerTest, AsksForTheBodyWhenAClientWaits) {
  start();
  RawClient peer = client();
  peer.send("POST /b HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n");
  EXPECT_EQ(peer.read_until("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
  peer.send("hi");
  EXPECT_EQ(peer.read_answer().body, "POST /b [hi]");
}

TEST_F(HttpServerTest, RefusesConnectionsBeyondTheLimit) {
  options_.max_connections = 2;
  start();
  std::optional<RawClient> first(client());
  RawClient second = client();
  first->send("GET / HTTP/1.1\r\n\r\n");
  EXPECT_EQ(first->read_answer().status, 200);
  second.send("GET / HTTP/1.1\r\n\r\n");
  EXPECT_EQ(second.read_answer().status, 200);
  RawClient third = client();
  const auto refusal = third.read_answer();
  EXPECT_EQ(refusal.status, 503);
  EXPECT_TRUE(RawClient::header(refusal.head, "Retry-After").has_value());
  third.half_close();
  EXPECT_TRUE(third.at_end());
  EXPECT_EQ(server_->stats().refused, 1u);

  // A place that becomes free is used again.
  first.reset();
  int status = 503;
  const auto deadline = std::chrono::steady_clock::now() + seconds(60);
  while (status == 503 && std::chrono::steady_clock::now() < deadline) {
    RawClient next = client();
    next.send("GET / HTTP/1.1\r\n\r\n");
    status = next.read_answer().status;
  }
  EXPECT_EQ(status, 200);
}

TEST_F(HttpServerTest, EndsConnectionsThatDontAsk) {
  options_.header_timeout = options_.body_timeout = options_.idle_timeout = milliseconds(50);
  start();
  RawClient silent = client();
  EXPECT_TRUE(silent.at_end());
  RawClient half = client();
  half.send("GET / HT");
  EXPECT_EQ(half.read_answer().status, 408);
  RawClient slow_body = client();
  slow_body.send("POST / HTTP/1.1\r\nContent-Length: 10\r\n\r\nabc");
  EXPECT_EQ(slow_body.read_answer().status, 408);
  RawClient idle = client();
  idle.send("GET / HTTP/1.1\r\n\r\n");
  EXPECT_EQ(idle.read_answer().status, 200);
  EXPECT_TRUE(idle.at_end());
}

TEST_F(HttpServerTest, PendingAnswersMayTakeLongerThanAnyTimeout) {
  options_.header_timeout = options_.body_timeout = options_.idle_timeout = options_.write_timeout = milliseconds(20);
  options_.heartbeat_interval = milliseconds(30);
  start();
  RawClient peer = client();
  peer.send("GET /hold HTTP/1.1\r\n\r\n");
  Held held = next_held();
  held.exchange->begin_stream({.heartbeat = ":\n\n"});
  peer.read_until("\r\n\r\n");
  for (int i = 0; i < 5; ++i) EXPECT_EQ(peer.read_chunk(), ":\n\n");  // 150 ms
  held.exchange->write("end");
  held.exchange->finish();
  std::string rest;
  while (const auto chunk = peer.read_chunk()) rest += *chunk;
  EXPECT_THAT(rest, HasSubstr("end"));
}

TEST_F(HttpServerTest, NoticesClientsThatGoAway) {
  start();
  for (const bool streaming : {false, true}) {
    for (const char* way : {"close", "reset", "half-close"}) {
      SCOPED_TRACE(fmt::format("{} {}", streaming ? "stream" : "pending", way));
      RawClient peer = client();
      peer.send("GET /hold HTTP/1.1\r\n\r\n");
      Held held = next_held();
      if (streaming) {
        held.exchange->begin_stream({});
        held.exchange->write("x");
        peer.read_until("x");
      }
      if (way == std::string_view("close")) peer.close();
      if (way == std::string_view("reset")) peer.reset();
      if (way == std::string_view("half-close")) peer.half_close();
      EXPECT_TRUE(held.closes_within(seconds(10)));
      held.exchange->write("dropped");
      held.exchange->finish();
    }
  }
  EXPECT_TRUE(server_->wait_idle(seconds(10)));
  EXPECT_EQ(server_->stats().clients_lost, 6u);
}

// The end of a client's input may arrive in the very moment in which its answer is sent.
TEST_F(HttpServerTest, ConnectionsEndWithTheirClients) {
  options_.idle_timeout = std::chrono::hours(1);
  start();
  for (int i = 0; i < 2000; ++i) {
    RawClient peer = client();
    peer.send("GET / HTTP/1.1\r\n\r\n");
    ASSERT_EQ(peer.read_answer().status, 200);
  }
  const auto deadline = std::chrono::steady_clock::now() + seconds(10);
  while (server_->stats().connections > 0 && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
  EXPECT_EQ(server_->stats().connections, 0u);
}

TEST_F(HttpServerTest, AnswersAClientThatHalfClosedAfterItsAnswerWasMade) {
  start();
  RawClient peer = client();
  peer.send("GET /a HTTP/1.1\r\n\r\n");
  peer.half_close();
  EXPECT_EQ(peer.read_answer().body, "GET /a []");
}

TEST_F(HttpServerTest, DisconnectsSlowReaders) {
  options_.max_unsent_bytes = 100'000;
  start();
  RawClient peer = client(4096);
  peer.send("GET /hold HTTP/1.1\r\n\r\n");
  Held held = next_held();
  held.exchange->begin_stream({});
  EXPECT_THAT(peer.read_until("\r\n\r\n"), StartsWith("HTTP/1.1 200 "));
  // Beyond what the kernel buffers for both ends and what we hold; nobody reads.
  const std::string piece(10'000, 'x');
  for (int i = 0; i < 2'000; ++i) held.exchange->write(piece);
  EXPECT_TRUE(held.closes_within(seconds(10)));
  EXPECT_THAT(peer.read_to_end(), Not(EndsWith("0\r\n\r\n")));  // cut off, and seen to be
}

TEST_F(HttpServerTest, DisconnectsReadersThatStandStill) {
  options_.write_timeout = milliseconds(100);
  options_.max_unsent_bytes = 64 << 20;
  start();
  RawClient peer = client(4096);
  peer.send("GET /hold HTTP/1.1\r\n\r\n");
  Held held = next_held();
  held.exchange->begin_stream({});
  held.exchange->write(std::string(32 << 20, 'x'));
  EXPECT_TRUE(held.closes_within(seconds(10)));
}

TEST_F(HttpServerTest, SendsLargeAnswersWhole) {
  start();
  RawClient peer = client();
  peer.send("GET /hold HTTP/1.1\r\n\r\n");
  const std::string large(20 << 20, 'x');
  next_held().exchange->respond({.body = large});
  const auto answer = peer.read_answer();
  EXPECT_TRUE(answer.whole);
  EXPECT_EQ(answer.body, large);
}

TEST_F(HttpServerTest, HundredsOfIdleStreamsLeaveRoomForOthers) {
  start();
  std::vector<RawClient> peers;
  std::vector<Held> held;
  for (int i = 0; i < 300; ++i) {
    peers.push_back(client());
    peers.back().send("GET /hold HTTP/1.1\r\n\r\n");
    held.push_back(next_held());
    held.back().exchange->begin_stream({});
  }
  for (int i = 0; i < 10; ++i) {
    RawClient other = client();
    other.send("GET /healthz HTTP/1.1\r\n\r\n");
    EXPECT_EQ(other.read_answer().status, 200);
  }
  for (Held& each : held) {
    each.exchange->write("done");
    each.exchange->finish();
  }
  for (RawClient& peer : peers) EXPECT_EQ(peer.read_answer().body, "done");
}

// Several threads write to several streams; bytes of one stream stay whole and in order.
TEST_F(HttpServerTest, StreamsTakeWritesFromAnyThread) {
  start();
  constexpr int kStreams = 8, kWrites = 500;
  std::vector<RawClient> peers;
  std::vector<std::thread> writers;
  for (int i = 0; i < kStreams; ++i) {
    peers.push_back(client());
    peers.back().send("GET /hold HTTP/1.1\r\n\r\n");
    writers.emplace_back([exchange = next_held().exchange] {
      exchange->begin_stream({});
      for (int k = 0; k < kWrites; ++k) exchange->write(fmt::format("{},", k));
      exchange->finish();
    });
  }
  std::string expected;
  for (int k = 0; k < kWrites; ++k) expected += fmt::format("{},", k);
  for (RawClient& peer : peers) EXPECT_EQ(peer.read_answer().body, expected);
  for (std::thread& writer : writers) writer.join();
}

TEST_F(HttpServerTest, PostedTasksOfAConnectionNeverRunTogether) {
  start();
  RawClient peer = client();
  peer.send("GET /hold HTTP/1.1\r\n\r\n");
  Held held = next_held();
  int unguarded = 0;  // a race here is what the thread sanitizer looks for
  std::vector<std::thread> posters;
  for (int t = 0; t < 4; ++t) {
    posters.emplace_back([&] {
      for (int k = 0; k < 1000; ++k) held.exchange->post([&] { ++unguarded; });
    });
  }
  for (std::thread& poster : posters) poster.join();
  std::promise<int> last;
  held.exchange->post([&] { last.set_value(unguarded); });
  EXPECT_EQ(last.get_future().get(), 4000);
  held.exchange->respond({});
  EXPECT_EQ(peer.read_answer().status, 200);
}

TEST_F(HttpServerTest, StopsTakingRequestsAndFinishesWhatRuns) {
  start();
  RawClient idle = client();
  idle.send("GET / HTTP/1.1\r\n\r\n");
  EXPECT_EQ(idle.read_answer().status, 200);
  RawClient busy = client();
  busy.send("GET /hold HTTP/1.1\r\n\r\n");
  Held held = next_held();
  held.exchange->begin_stream({});

  server_->stop_accepting();
  EXPECT_TRUE(idle.at_end());
  EXPECT_FALSE(server_->wait_idle(milliseconds(10)));
  held.exchange->write("last words");
  held.exchange->finish();
  EXPECT_EQ(busy.read_answer().body, "last words");
  EXPECT_TRUE(server_->wait_idle(seconds(10)));
  busy.half_close();
  EXPECT_TRUE(busy.at_end());
}

TEST_F(HttpServerTest, DestructionCutsOffAndTellsProducers) {
  start();
  RawClient peer = client();
  peer.send("GET /hold HTTP/1.1\r\n\r\n");
  Held held = next_held();
  held.exchange->begin_stream({});
  server_.reset();
  EXPECT_TRUE(held.closes_within(seconds(0)));
  held.exchange->write("into the void");
  held.exchange->post([] { FAIL() << "ran after the end"; });
  held.exchange->finish();
  EXPECT_FALSE(peer.read_answer().whole);
}

TEST_F(HttpServerTest, NamesThePortThatIsInUse) {
  start();
  HttpServerOptions same;
  same.port = server_->port();
  const auto second = HttpServer::start(same, [](HttpRequest, std::shared_ptr<HttpExchange>) {});
  ASSERT_FALSE(second.has_value());
  EXPECT_EQ(second.error().code, ErrorCode::kAlreadyExists);
  EXPECT_THAT(second.error().message, HasSubstr(fmt::format("127.0.0.1 port {}", server_->port())));
}

TEST_F(HttpServerTest, RefusesUnusableHosts) {
  for (const char* host : {"", "no.such.host.invalid", "203.0.113.1"}) {
    HttpServerOptions options;
    options.host = host;
    const auto server = HttpServer::start(options, [](HttpRequest, std::shared_ptr<HttpExchange>) {});
    ASSERT_FALSE(server.has_value()) << host;
    EXPECT_THAT(server.error().message, HasSubstr(host));
  }
}

TEST_F(HttpServerTest, RendersItsOwnErrorsAsTold) {
  options_.render_error = [](int status, std::string_view message) {
    return HttpResponse{.status = status, .body = fmt::format("<{}: {}>", status, message)};
  };
  start();
  RawClient peer = client();
  peer.send("nonsense\r\n\r\n");
  EXPECT_THAT(peer.read_answer().body, StartsWith("<400: malformed HTTP request"));
}

}  // namespace
}  // namespace nmc::net
