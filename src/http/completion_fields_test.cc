// Fields that add to an answer or change how it is shown: echo, ids, the stop string, the request's name.
#include "http/server.h"
#include "http/server_test_support.h"

namespace nmc::http {
namespace {

using engine::FinishReason;
using net::RawClient;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

class CompletionFieldsTest : public ServerTest {
 protected:
  Json whole(const std::string& request, std::string_view said, FinishReason reason = FinishReason::kLength) {
    RawClient peer = client();
    peer.send(request);
    const ScriptedRequest live = runtime_.next();
    live.say(said);
    live.finish(reason);
    return json_of(peer.read_answer().body);
  }
  std::vector<Json> streamed(const std::string& request, std::string_view said) {
    RawClient peer = client();
    peer.send(request);
    const ScriptedRequest live = runtime_.next();
    live.say(said);
    live.finish(FinishReason::kLength);
    return events_of(peer);
  }
};

TEST_F(CompletionFieldsTest, EchoPutsThePromptAheadOfTheAnswer) {
  EXPECT_EQ(whole(text(R"("echo":true,"max_tokens":2)"), "ab")["choices"][0]["text"], "hiab");
  EXPECT_EQ(
      whole(post("/v1/completions", R"({"prompt":[120,121],"echo":true,"max_tokens":1})"), "z")["choices"][0]["text"],
      "xyz");
  // As it was computed, where it was cut.
  EXPECT_EQ(whole(text(R"("echo":true,"truncate_prompt_tokens":1,"max_tokens":1)"), "z")["choices"][0]["text"], "iz");
  EXPECT_THAT(texts_of(streamed(text(R"("echo":true,"stream":true,"max_tokens":2)"), "ab")), ElementsAre("hia", "b"));
  // A stop string is looked for in the answer only.
  EXPECT_EQ(whole(text(R"("echo":true,"stop":"h","max_tokens":2)"), "ab")["choices"][0]["text"], "hiab");
}

TEST_F(CompletionFieldsTest, EchoedTokensHaveTheirLogprobs) {
  for (const bool stream : {false, true}) {
    RawClient peer = client();
    peer.send(
        text(fmt::format(R"("echo":true,"logprobs":1,"max_tokens":1,"return_token_ids":true,"stream":{})", stream)));
    const ScriptedRequest live = runtime_.next();
    EXPECT_EQ(live.request.prompt_logprobs, 1u);
    EXPECT_EQ(live.request.logprobs, 1u);
    live.tell_prompt('x');
    live.listener->on_token({'a', {{'a', -0.5f}, {'b', -0.25f}}});
    live.finish(FinishReason::kLength);
    const Json choice = stream ? events_of(peer)[0]["choices"][0] : json_of(peer.read_answer().body)["choices"][0];
    EXPECT_EQ(choice["text"], "hia");
    EXPECT_EQ(choice["token_ids"], Json::array({'a'}));
    const Json& logprobs = choice["logprobs"];
    EXPECT_EQ(logprobs["tokens"], Json({"h", "i", "a"}));
    EXPECT_EQ(logprobs["text_offset"], Json({0, 1, 2}));
    EXPECT_EQ(logprobs["token_logprobs"], Json({nullptr, -1.0, -0.5}));
    EXPECT_EQ(logprobs["top_logprobs"],
              Json::array({nullptr, {{"x", -0.5}, {"i", -1.0}}, {{"b", -0.25}, {"a", -0.5}}}));
  }
}

TEST_F(CompletionFieldsTest, PromptLogprobsAreToldBesideTheAnswer) {
  const auto ask = [&](const std::string& request) {
    RawClient peer = client();
    peer.send(request);
    const ScriptedRequest live = runtime_.next();
    EXPECT_EQ(live.request.prompt_logprobs, 1u);
    EXPECT_FALSE(live.request.logprobs);
    live.tell_prompt('x');
    live.say("a");
    live.finish(FinishReason::kLength);
    return json_of(peer.read_answer().body);
  };
  const Json told = ask(text(R"("prompt_logprobs":1,"max_tokens":1)"))["choices"][0];
  EXPECT_TRUE(told["logprobs"].is_null());
  EXPECT_EQ(told["prompt_logprobs"],
            Json::array({nullptr,
                         {{"105", {{"logprob", -1.0}, {"rank", 2}, {"decoded_token", "i"}}},
                          {"120", {{"logprob", -0.5}, {"rank", 1}, {"decoded_token", "x"}}}}}));
  const Json talk = ask(chat(R"("prompt_logprobs":1,"max_tokens":1)"));
  EXPECT_EQ(talk["prompt_logprobs"].size(), talk["usage"]["prompt_tokens"]);
  EXPECT_FALSE(talk["choices"][0].contains("prompt_logprobs"));
}

// As many as either shows, computed once for all answers to a prompt.
TEST_F(CompletionFieldsTest, PromptLogprobsAreAskedForOnceAPrompt) {
  RawClient peer = client();
  peer.send(text(R"("echo":true,"logprobs":0,"prompt_logprobs":1,"n":2,"max_tokens":1)"));
  const ScriptedRequest first = runtime_.next();
  EXPECT_EQ(first.request.prompt_logprobs, 1u);
  first.tell_prompt('x');
  first.listener->on_token({'a', {{'a', -0.5f}}});
  const ScriptedRequest second = runtime_.next();
  EXPECT_FALSE(second.request.prompt_logprobs);
  second.listener->on_token({'b', {{'b', -0.5f}}});
  for (const ScriptedRequest& live : {first, second}) live.finish(FinishReason::kLength);
  const Json answer = json_of(peer.read_answer().body);
  for (const Json& choice : answer["choices"]) {
    EXPECT_EQ(choice["logprobs"]["token_logprobs"], Json({nullptr, -1.0, -0.5}));
    EXPECT_EQ(choice["logprobs"]["top_logprobs"][1], Json({{"i", -1.0}}));
    EXPECT_EQ(choice["prompt_logprobs"][1].size(), 2u);
  }
}

TEST_F(CompletionFieldsTest, IdsAreToldWithTheirTextAndWithoutBeingAskedForNot) {
  const Json plain = whole(text(R"("max_tokens":2)"), "ab");
  EXPECT_FALSE(plain["choices"][0].contains("token_ids") || plain["choices"][0].contains("prompt_token_ids"));
  const Json told = whole(text(R"("return_token_ids":true,"max_tokens":2)"), "ab")["choices"][0];
  EXPECT_EQ(told["token_ids"], Json({'a', 'b'}));
  EXPECT_EQ(told["prompt_token_ids"], Json({'h', 'i'}));
  EXPECT_TRUE(told["logprobs"].is_null());
  const Json talk = whole(chat(R"("return_token_ids":true,"max_tokens":2)"), "ab");
  EXPECT_EQ(talk["choices"][0]["token_ids"], Json({'a', 'b'}));
  EXPECT_EQ(talk["prompt_token_ids"].size(), talk["usage"]["prompt_tokens"]);
}

TEST_F(CompletionFieldsTest, AStreamTellsIdsOnceAndAsTheyCome) {
  const auto chunks = streamed(text(R"("return_token_ids":true,"stream":true,"max_tokens":2)"), "ab");
  EXPECT_EQ(chunks[0]["choices"][0]["prompt_token_ids"], Json({'h', 'i'}));
  EXPECT_EQ(chunks[0]["choices"][0]["token_ids"], Json::array({'a'}));
  EXPECT_FALSE(chunks[1]["choices"][0].contains("prompt_token_ids"));
  EXPECT_EQ(chunks[1]["choices"][0]["token_ids"], Json::array({'b'}));
  const auto talk = streamed(chat(R"("return_token_ids":true,"stream":true,"max_tokens":1)"), "a");
  EXPECT_EQ(talk[0]["choices"][0]["delta"]["role"], "assistant");
  EXPECT_EQ(talk[0]["prompt_token_ids"].size(), 6u);
  EXPECT_FALSE(talk[1].contains("prompt_token_ids"));
  EXPECT_EQ(talk[1]["choices"][0]["token_ids"], Json::array({'a'}));
}

TEST_F(CompletionFieldsTest, WhatEndedTheAnswerIsShownWhereThatIsAskedFor) {
  RawClient peer = client();
  peer.send(text(R"("stop":"ND","include_stop_str_in_output":true,"max_tokens":9)"));
  const ScriptedRequest live = runtime_.next();
  live.say("aENDx");
  EXPECT_TRUE(runtime_.is_cancelled_within_ten_seconds(live.request.id));
  const Json choice = json_of(peer.read_answer().body)["choices"][0];
  EXPECT_EQ(choice["text"], "aEND");
  EXPECT_EQ(choice["stop_reason"], "ND");

  const Json by_token = whole(text(R"("stop_token_ids":[33],"include_stop_str_in_output":true)"), "a!",
                              FinishReason::kStop)["choices"][0];
  EXPECT_EQ(by_token["text"], "a!");
  EXPECT_EQ(by_token["stop_reason"], 33);
}

TEST_F(CompletionFieldsTest, ARequestKeepsTheNameItWasGiven) {
  const auto asked = [&](std::string_view fields, std::string_view headers) {
    RawClient peer = client();
    peer.send(post("/v1/completions", fmt::format(R"({{"prompt":"hi","max_tokens":1{}}})", fields), headers));
    const ScriptedRequest live = runtime_.next();
    EXPECT_THAT(live.request.id, Not(HasSubstr("mine")));  // names may come twice
    live.say("a");
    live.finish(FinishReason::kLength);
    const auto answer = peer.read_answer();
    const std::string id = json_of(answer.body)["id"];
    EXPECT_TRUE(id.starts_with("cmpl-"));
    EXPECT_THAT(answer.head, HasSubstr(fmt::format("X-Request-Id: {}\r\n", id.substr(5))));
    return id;
  };
  EXPECT_EQ(asked(R"(,"request_id":"mine")", ""), "cmpl-mine");
  EXPECT_EQ(asked("", "X-Request-Id: mine-too\r\n"), "cmpl-mine-too");
  EXPECT_EQ(asked(R"(,"request_id":"body")", "x-request-id: mine-first\r\n"), "cmpl-mine-first");
  EXPECT_NE(asked("", ""), asked("", ""));

  const auto wrong = ask(post("/v1/completions", R"({"prompt":5})", "X-Request-Id: mine\r\n"));
  EXPECT_EQ(wrong.status, 400);
  EXPECT_THAT(wrong.head, HasSubstr("X-Request-Id: mine\r\n"));
  const auto nameless = ask(post("/v1/completions", R"({"prompt":"a"})", "X-Request-Id: a b\r\n"));
  EXPECT_EQ(nameless.status, 400);
  EXPECT_THAT(nameless.body, HasSubstr("X-Request-Id"));
}

TEST_F(CompletionFieldsTest, TwoRequestsOfOneNameAreTwo) {
  RawClient first = client(), second = client();
  first.send(text(R"("request_id":"twin","max_tokens":1)"));
  const ScriptedRequest one = runtime_.next();
  second.send(text(R"("request_id":"twin","max_tokens":1)"));
  const ScriptedRequest two = runtime_.next();
  EXPECT_NE(one.request.id, two.request.id);
  second.close();
  EXPECT_TRUE(runtime_.is_cancelled_within_ten_seconds(two.request.id));
  one.say("a");
  one.finish(FinishReason::kLength);
  EXPECT_EQ(first.read_answer().status, 200);
}

}  // namespace
}  // namespace nmc::http
