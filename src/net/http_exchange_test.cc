#include "net/http_exchange.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nmc::net {
namespace {

using Pull = HttpExchangeState::Pull;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

// Runs tasks at once and counts wake-ups.
class CountingHost final : public HttpExchangeHost {
 public:
  void post(std::function<void()> task) override { task(); }
  void wake() override { ++wakes; }
  void cut_off() override { ++cuts; }
  int wakes = 0;
  int cuts = 0;
};

class HttpExchangeTest : public ::testing::Test {
 protected:
  std::shared_ptr<HttpExchangeState> state(HttpFraming framing = {}) {
    return std::make_shared<HttpExchangeState>(std::make_shared<HttpServerOptions>(options_), framing, host_);
  }
  // All that can be pulled now.
  static std::string pull_all(HttpExchangeState& state) {
    std::string all, bytes;
    while (state.pull(bytes) == Pull::kBytes) {
      all += bytes;
      state.sent(bytes.size());
    }
    return all;
  }
  static Pull pull(HttpExchangeState& state) {
    std::string bytes;
    return state.pull(bytes);
  }

  HttpServerOptions options_;
  std::shared_ptr<CountingHost> host_ = std::make_shared<CountingHost>();
};

TEST_F(HttpExchangeTest, RespondsWithLengthAndType) {
  const auto s = state();
  EXPECT_EQ(pull(*s), Pull::kNothingYet);
  s->respond({.status = 404, .content_type = "a/b", .body = "gone", .headers = {{"X-Y", "z"}}});
  EXPECT_EQ(host_->wakes, 1);
  EXPECT_EQ(pull_all(*s), "HTTP/1.1 404 Not Found\r\nContent-Type: a/b\r\nX-Y: z\r\nContent-Length: 4\r\n\r\ngone");
  EXPECT_EQ(pull(*s), Pull::kComplete);
  EXPECT_TRUE(s->keep_alive());
}

TEST_F(HttpExchangeTest, StreamsInChunksToHttp11) {
  const auto s = state();
  s->begin_stream({.heartbeat = ":\n\n"});
  s->write("data: a\n\n");
  s->write("");  // would end the body
  s->write(std::string(300, 'x'));
  s->finish(HttpExchange::After::kKeepAlive);
  s->write("late");
  const std::string sent = pull_all(*s);
  EXPECT_THAT(sent, HasSubstr("Transfer-Encoding: chunked\r\n"));
  EXPECT_THAT(sent, EndsWith("\r\n\r\n9\r\ndata: a\n\n\r\n12c\r\n" + std::string(300, 'x') + "\r\n0\r\n\r\n"));
  EXPECT_EQ(pull(*s), Pull::kComplete);
}

TEST_F(HttpExchangeTest, StreamsUntilCloseToHttp10) {
  const auto s = state({.http11 = false});
  s->begin_stream({});
  s->write("a");
  s->finish(HttpExchange::After::kKeepAlive);
  const std::string sent = pull_all(*s);
  EXPECT_THAT(sent, Not(HasSubstr("chunked")));
  EXPECT_THAT(sent, HasSubstr("Connection: close\r\n"));
  EXPECT_THAT(sent, EndsWith("\r\n\r\na"));
  EXPECT_FALSE(s->keep_alive());
}

TEST_F(HttpExchangeTest, SendsNoBodyToHead) {
  const auto whole = state({.head_only = true});
  whole->respond({.body = "body"});
  EXPECT_THAT(pull_all(*whole), EndsWith("Content-Length: 4\r\n\r\n"));
  const auto stream = state({.head_only = true});
  stream->begin_stream({});
  stream->write("a");
  stream->finish(HttpExchange::After::kKeepAlive);
  EXPECT_THAT(pull_all(*stream), EndsWith("\r\n\r\n"));
  EXPECT_EQ(pull(*stream), Pull::kComplete);
}

TEST_F(HttpExchangeTest, CutsOffAReaderThatLeavesTooMuchUnread) {
  options_.max_unsent_bytes = 1000;
  const auto s = state();
  s->begin_stream({});
  pull_all(*s);
  s->write(std::string(900, 'a'));
  std::string bytes;
  ASSERT_EQ(s->pull(bytes), Pull::kBytes);  // with the socket, not with the client
  s->write(std::string(50, 'b'));
  EXPECT_EQ(s->pull(bytes), Pull::kBytes);
  s->sent(bytes.size());
  s->write(std::string(990, 'c'));
  EXPECT_EQ(s->pull(bytes), Pull::kBytes);
  s->write(std::string(50, 'd'));  // faster than the connection sends, which the reader can't help
  EXPECT_EQ(host_->cuts, 0);
  s->blocked(true);
  EXPECT_EQ(host_->cuts, 1);
  EXPECT_EQ(s->pull(bytes), Pull::kOverrun);
}

TEST_F(HttpExchangeTest, CutsOffOnlyWhileTheReaderIsBehind) {
  options_.max_unsent_bytes = 1000;
  const auto s = state();
  s->begin_stream({});
  pull_all(*s);
  std::string bytes;
  s->write(std::string(900, 'a'));
  ASSERT_EQ(s->pull(bytes), Pull::kBytes);
  s->blocked(true);
  s->write(std::string(50, 'b'));
  s->blocked(false);  // it caught up
  s->sent(bytes.size());
  EXPECT_EQ(s->pull(bytes), Pull::kBytes);
  s->blocked(true);
  s->write(std::string(2000, 'c'));
  EXPECT_EQ(host_->cuts, 1);
  EXPECT_EQ(s->pull(bytes), Pull::kOverrun);
}

TEST_F(HttpExchangeTest, AStreamThatIsOverIsSentHoweverLarge) {
  options_.max_unsent_bytes = 1000;
  const auto s = state();
  s->begin_stream({});
  s->write(std::string(5000, 'a'));
  s->finish(HttpExchange::After::kKeepAlive);
  s->blocked(true);
  EXPECT_EQ(host_->cuts, 0);
  EXPECT_THAT(pull_all(*s), EndsWith("0\r\n\r\n"));
}

TEST_F(HttpExchangeTest, TellsOnceThatTheClientIsGone) {
  const auto s = state();
  int told = 0;
  s->on_closed([&] { ++told; });
  s->detach();
  s->detach();
  EXPECT_EQ(told, 1);
  s->on_closed([&] { told += 10; });  // asked afterwards: told at once
  EXPECT_EQ(told, 11);
  s->respond({});
  EXPECT_EQ(pull(*s), Pull::kNothingYet);
}

TEST_F(HttpExchangeTest, TellsNothingAfterACompleteAnswer) {
  const auto s = state();
  bool told = false;
  s->on_closed([&] { told = true; });
  s->respond({});
  s->detach();
  s->on_closed([&] { told = true; });
  EXPECT_FALSE(told);
}

TEST_F(HttpExchangeTest, AnswersForAHandlerThatLosesTheExchange) {
  const auto s = state();
  make_http_exchange(s);  // the only reference goes at once
  EXPECT_THAT(pull_all(*s), StartsWith("HTTP/1.1 500 "));
  const auto stream = state();
  make_http_exchange(stream)->begin_stream({});
  EXPECT_EQ(pull(*stream), Pull::kOverrun);  // cut off: an unfinished stream must not look finished
}

TEST_F(HttpExchangeTest, TakesOnlyTheFirstAnswer) {
  const auto s = state();
  s->write("before any head");
  s->finish(HttpExchange::After::kKeepAlive);
  EXPECT_EQ(pull(*s), Pull::kNothingYet);
  s->respond({.body = "one"});
  s->respond({.body = "two"});
  s->begin_stream({});
  EXPECT_THAT(pull_all(*s), EndsWith("\r\n\r\none"));
}

}  // namespace
}  // namespace nmc::net
