// Who may ask, and how long a request may wait.
#include "http/server.h"
#include "http/server_test_support.h"

namespace nmc::http {
namespace {

using engine::FinishReason;
using net::RawClient;
using ::testing::HasSubstr;
using ::testing::Not;

class ServerAccessTest : public ServerTest {
 protected:
  void SetUp() override {}
  static std::string get(std::string_view path, std::string_view headers) {
    return fmt::format("GET {} HTTP/1.1\r\n{}\r\n", path, headers);
  }
  static std::string preflight(std::string_view path, std::string_view origin) {
    return fmt::format(
        "OPTIONS {} HTTP/1.1\r\nOrigin: {}\r\nAccess-Control-Request-Method: POST\r\n"
        "Access-Control-Request-Headers: authorization,x-stainless-os\r\n\r\n",
        path, origin);
  }
};

TEST_F(ServerAccessTest, PagesOfOtherOriginsReadNothingUnlessTold) {
  start();
  const auto answer = ask(get("/v1/models", "Origin: https://a.example\r\n"));
  EXPECT_EQ(answer.status, 200);
  EXPECT_THAT(answer.head, Not(HasSubstr("Access-Control")));
  EXPECT_THAT(answer.head, Not(HasSubstr("Vary")));
  EXPECT_EQ(ask(preflight("/v1/completions", "https://a.example")).status, 405);
}

TEST_F(ServerAccessTest, PagesOfNamedOriginsReadAnswersOfEveryKind) {
  options_.cors_origins = {"https://a.example", "http://localhost:3000"};
  start();
  for (const char* path : {"/v1/models", "/healthz", "/nothing"}) {
    const auto answer = ask(get(path, "Origin: http://localhost:3000\r\n"));
    EXPECT_THAT(answer.head, HasSubstr("Access-Control-Allow-Origin: http://localhost:3000\r\n")) << path;
    EXPECT_THAT(answer.head, HasSubstr("Vary: Origin\r\n"));
    EXPECT_THAT(answer.head, Not(HasSubstr("Credentials")));
  }
  for (const char* origin : {"https://a.example.evil", "https://a.example:443", "null", "https://A.example"}) {
    const auto answer = ask(get("/v1/models", fmt::format("Origin: {}\r\n", origin)));
    EXPECT_THAT(answer.head, Not(HasSubstr("Access-Control"))) << origin;
    EXPECT_THAT(answer.head, HasSubstr("Vary: Origin\r\n"));
    EXPECT_EQ(ask(preflight("/v1/completions", origin)).status, 405);
  }
  EXPECT_THAT(ask(get("/v1/models", "")).head, HasSubstr("Vary: Origin\r\n"));
}

TEST_F(ServerAccessTest, APreflightIsAnsweredWithoutTheKey) {
  options_.cors_origins = {"https://a.example"};
  options_.api_key = "sesame";
  start();
  const auto answer = ask(preflight("/v1/completions", "https://a.example"));
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(answer.body, "");
  EXPECT_THAT(answer.head, HasSubstr("Access-Control-Allow-Origin: https://a.example\r\n"));
  EXPECT_THAT(answer.head, HasSubstr("Access-Control-Allow-Methods: POST\r\n"));
  EXPECT_THAT(answer.head, HasSubstr("Access-Control-Allow-Headers: authorization,x-stainless-os\r\n"));
  EXPECT_THAT(ask(preflight("/ping", "https://a.example")).head,
              HasSubstr("Access-Control-Allow-Methods: GET, HEAD, POST\r\n"));
  // What follows needs the key all the same, and the page may read that it does.
  const auto refused = ask(post("/v1/completions", R"({"prompt":"a"})", "Origin: https://a.example\r\n"));
  EXPECT_EQ(refused.status, 401);
  EXPECT_THAT(refused.head, HasSubstr("Access-Control-Allow-Origin: https://a.example\r\n"));
  EXPECT_EQ(ask(preflight("/v1/nothing", "https://a.example")).status, 401);
}

TEST_F(ServerAccessTest, AStreamCarriesTheOriginToo) {
  options_.cors_origins = {"*"};
  start();
  RawClient peer = client();
  peer.send(post("/v1/completions", R"({"prompt":"a","max_tokens":1,"stream":true})", "Origin: https://b.example\r\n"));
  const ScriptedRequest live = runtime_.next();
  const std::string head = peer.read_until("\r\n\r\n");
  EXPECT_THAT(head, HasSubstr("Access-Control-Allow-Origin: *\r\n"));
  EXPECT_THAT(head, Not(HasSubstr("Vary")));
  live.say("x");
  live.finish(FinishReason::kLength);
  EXPECT_THAT(peer.read_until("[DONE]"), HasSubstr("[DONE]"));
}

TEST_F(ServerAccessTest, ARequestThatWaitedTooLongMayComeAgain) {
  options_.queue_timeout = std::chrono::seconds(5);
  start();
  const Nanos before = real_clock().now();
  RawClient peer = client();
  peer.send(text());
  const ScriptedRequest live = runtime_.next();
  ASSERT_TRUE(live.request.queue_deadline);
  EXPECT_GE(*live.request.queue_deadline, before + options_.queue_timeout);
  EXPECT_LE(*live.request.queue_deadline, real_clock().now() + options_.queue_timeout);
  EXPECT_FALSE(live.request.deadline);
  live.finish(FinishReason::kFailed, 0, Error{ErrorCode::kUnavailable, "no worker was free for 5 s"});
  const auto answer = peer.read_answer();
  EXPECT_EQ(answer.status, 503);
  EXPECT_THAT(answer.head, HasSubstr("Retry-After: 1\r\n"));
  EXPECT_EQ(json_of(answer.body)["error"]["type"], "ServiceUnavailableError");
}

TEST_F(ServerAccessTest, OtherAnswersToAPromptWaitFromWhenTheyAreQueued) {
  options_.queue_timeout = std::chrono::seconds(5);
  start();
  RawClient peer = client();
  peer.send(text(R"("n":2,"max_tokens":1)"));
  const ScriptedRequest first = runtime_.next();
  first.say("a");
  const ScriptedRequest second = runtime_.next();
  ASSERT_TRUE(first.request.queue_deadline && second.request.queue_deadline);
  EXPECT_GT(*second.request.queue_deadline, *first.request.queue_deadline);
  first.finish(FinishReason::kLength);
  second.say("b");
  second.finish(FinishReason::kLength);
  EXPECT_EQ(peer.read_answer().status, 200);
}

TEST_F(ServerAccessTest, WithoutALimitARequestWaitsAsLongAsItMay) {
  start();
  RawClient peer = client();
  peer.send(text());
  const ScriptedRequest live = runtime_.next();
  EXPECT_FALSE(live.request.queue_deadline);
  live.finish(FinishReason::kLength);
  EXPECT_EQ(peer.read_answer().status, 200);
}

}  // namespace
}  // namespace nmc::http
