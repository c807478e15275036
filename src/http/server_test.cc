#include "http/server.h"

#include "http/server_test_support.h"
#include "model/detokenizer.h"

namespace nmc::http {
namespace {

using engine::FinishReason;
using net::RawClient;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST_F(ServerTest, AnswersAChatWhole) {
  RawClient peer = client();
  peer.send(chat(R"("max_tokens":3)"));
  const ScriptedRequest live = runtime_.next();
  EXPECT_EQ(live.request.max_tokens, 3u);
  live.say("abc");
  live.finish(FinishReason::kLength, 2);
  const auto answer = peer.read_answer();
  EXPECT_EQ(answer.status, 200);
  const Json json = json_of(answer.body);
  EXPECT_THAT(json["id"].get<std::string>(), StartsWith("chatcmpl-"));
  EXPECT_EQ(json["object"], "chat.completion");
  EXPECT_EQ(json["model"], "nano-mooncake");
  EXPECT_EQ(json["choices"].size(), 1u);
  EXPECT_EQ(json["choices"][0]["message"]["role"], "assistant");
  EXPECT_EQ(json["choices"][0]["message"]["content"], "abc");
  EXPECT_EQ(json["choices"][0]["finish_reason"], "length");
  EXPECT_EQ(json["usage"]["prompt_tokens"], 6);
  EXPECT_EQ(json["usage"]["completion_tokens"], 3);
  EXPECT_EQ(json["usage"]["total_tokens"], 9);
  EXPECT_EQ(json["usage"]["prompt_tokens_details"]["cached_tokens"], 4);
}

TEST_F(ServerTest, AnswersSeveralPromptsByIndex) {
  RawClient peer = client();
  peer.send(post("/v1/completions", R"({"prompt":["a","bb"],"max_tokens":2})"));
  const ScriptedRequest first = runtime_.next(), second = runtime_.next();
  second.say("22");
  second.finish(FinishReason::kLength, 2);
  first.say("1");
  first.listener->on_token({model::ByteTokenizer::kEos, {}});
  first.finish(FinishReason::kStop, 1);
  const Json json = json_of(peer.read_answer().body);
  EXPECT_THAT(json["id"].get<std::string>(), StartsWith("cmpl-"));
  EXPECT_EQ(json["object"], "text_completion");
  EXPECT_EQ(json["choices"][0]["text"], "1");
  EXPECT_EQ(json["choices"][0]["finish_reason"], "stop");
  EXPECT_EQ(json["choices"][1]["index"], 1);
  EXPECT_EQ(json["choices"][1]["text"], "22");
  EXPECT_EQ(json["choices"][1]["finish_reason"], "length");
  EXPECT_EQ(json["usage"]["prompt_tokens"], 3);
  EXPECT_EQ(json["usage"]["completion_tokens"], 4);  // the end-of-sequence token counts, as in the engine
}

TEST_F(ServerTest, StreamsOneEventAToken) {
  RawClient peer = client();
  peer.send(chat(R"("max_tokens":3,"stream":true)"));
  const ScriptedRequest live = runtime_.next();
  live.say("abc");
  live.finish(FinishReason::kLength, 6);
  const std::vector<Json> events = events_of(peer);
  EXPECT_THAT(texts_of(events), ElementsAre("", "a", "b", "c"));
  EXPECT_EQ(events[0]["choices"][0]["delta"]["role"], "assistant");
  EXPECT_EQ(events[0]["object"], "chat.completion.chunk");
  EXPECT_TRUE(events[2]["choices"][0]["finish_reason"].is_null());
  EXPECT_EQ(events[3]["choices"][0]["finish_reason"], "length");
  EXPECT_EQ(events.back(), "[DONE]");
  EXPECT_EQ(events.size(), 5u);  // no usage chunk: nobody asked for one
  for (std::size_t i = 0; i < 4; ++i) EXPECT_FALSE(events[i].contains("usage"));
  // The connection serves on.
  peer.send("GET /healthz HTTP/1.1\r\n\r\n");
  EXPECT_EQ(peer.read_answer().status, 200);
}

TEST_F(ServerTest, UsageChunkComesLastAndOnlyOnRequest) {
  RawClient peer = client();
  peer.send(text(R"("max_tokens":5,"stream":true,"stream_options":{"include_usage":true})"));
  const ScriptedRequest live = runtime_.next();
  live.say("ab");
  live.listener->on_token({model::ByteTokenizer::kEos, {}});
  live.finish(FinishReason::kStop, 0);
  const std::vector<Json> events = events_of(peer);
  ASSERT_EQ(events.size(), 5u);
  EXPECT_THAT(texts_of(events), ElementsAre("a", "b", ""));
  for (std::size_t i = 0; i < 3; ++i) EXPECT_TRUE(events[i].at("usage").is_null());
  EXPECT_EQ(events[2]["choices"][0]["finish_reason"], "stop");
  EXPECT_EQ(events[3]["choices"], Json::array());
  EXPECT_EQ(events[3]["usage"]["completion_tokens"], 3);
  EXPECT_EQ(events[3]["usage"]["prompt_tokens_details"]["cached_tokens"], 2);
  EXPECT_EQ(events[4], "[DONE]");
}

TEST_F(ServerTest, UsageInEachChunkOnRequest) {
  RawClient peer = client();
  peer.send(
      text(R"("max_tokens":2,"stream":true,"stream_options":{"include_usage":true,"continuous_usage_stats":true})"));
  const ScriptedRequest live = runtime_.next();
  live.say("ab");
  live.finish(FinishReason::kLength);
  const std::vector<Json> events = events_of(peer);
  EXPECT_EQ(events[0]["usage"]["completion_tokens"], 1);
  EXPECT_EQ(events[1]["usage"]["completion_tokens"], 2);
}

TEST_F(ServerTest, CharactersNeverSplitAcrossEvents) {
  // A token a byte; the answer ends within the last character at every place.
  const std::string family = "a\xC3\xA9\xE4\xB8\xAD\xF0\x9F\x91\xA9\xE2\x80\x8D\xF0\x9F\x91\xA7";
  for (std::size_t size = 1; size <= family.size(); ++size) {
    for (const bool stream : {true, false}) {
      RawClient peer = client();
      peer.send(text(fmt::format(R"("max_tokens":{},"stream":{})", size, stream)));
      const ScriptedRequest live = runtime_.next();
      live.say(family.substr(0, size));
      live.finish(FinishReason::kLength);
      std::string joined;
      if (stream) {
        const std::vector<std::string> texts = texts_of(events_of(peer));  // each event is parsed, so valid UTF-8
        EXPECT_EQ(texts.size(), size);
        for (const std::string& piece : texts) joined += piece;
      } else {
        joined = json_of(peer.read_answer().body)["choices"][0]["text"];
      }
      model::Utf8Stream reference;
      std::string expected = reference.push(family.substr(0, size));
      expected += reference.flush();
      EXPECT_EQ(joined, expected) << size;
    }
  }
}

TEST_F(ServerTest, OtherAnswersToAPromptStartWhenItIsComputed) {
  RawClient peer = client();
  peer.send(text(R"("max_tokens":2,"n":3,"seed":5)"));
  const ScriptedRequest first = runtime_.next();
  EXPECT_EQ(runtime_.waiting(), 0u) << "the others would compute the prompt again";
  first.say("a");
  const ScriptedRequest second = runtime_.next(), third = runtime_.next();
  EXPECT_EQ(second.request.prompt, first.request.prompt);
  EXPECT_NE(second.request.sampling.seed, third.request.sampling.seed);
  third.say("cc");
  third.finish(FinishReason::kLength, 0);
  first.say("a");
  first.finish(FinishReason::kLength, 2);
  second.say("bb");
  second.finish(FinishReason::kLength, 0);
  const Json json = json_of(peer.read_answer().body);
  ASSERT_EQ(json["choices"].size(), 3u);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(json["choices"][i]["index"], i);
    EXPECT_EQ(json["choices"][i]["text"], std::string(2, static_cast<char>('a' + i)));
  }
  EXPECT_EQ(json["usage"]["prompt_tokens"], 2) << "it was sent once";
  EXPECT_EQ(json["usage"]["completion_tokens"], 6);
}

TEST_F(ServerTest, StopTokensEndAnAnswerUnseenAndAreItsReason) {
  for (const bool stream : {true, false}) {
    RawClient peer = client();
    peer.send(text(fmt::format(R"("max_tokens":9,"stop_token_ids":[122],"stream":{})", stream)));
    const ScriptedRequest live = runtime_.next();
    EXPECT_EQ(live.request.stop_ids, std::vector<engine::TokenId>{'z'});
    live.say("abz");
    live.finish(FinishReason::kStop, 2);
    Json last;
    if (stream) {
      const std::vector<Json> events = events_of(peer);
      EXPECT_THAT(texts_of(events), ElementsAre("a", "b", ""));
      last = events[2]["choices"][0];
    } else {
      last = json_of(peer.read_answer().body)["choices"][0];
      EXPECT_EQ(last["text"], "ab");
    }
    EXPECT_EQ(last["finish_reason"], "stop");
    EXPECT_EQ(last["stop_reason"], 'z');
  }
}

// One byte of a character is no text, yet it has a probability.
TEST_F(ServerTest, LogprobsComeWithTheirTokensWholeOrStreamed) {
  const auto answer = [](const ScriptedRequest& live) {
    live.listener->on_token({0xC3, {{0xC3, -0.5f}, {0xC3, -0.5f}, {'x', -1.5f}}});
    live.listener->on_token({0xA9, {{0xA9, -0.25f}, {'y', -0.125f}, {0xA9, -0.25f}}});
    live.listener->on_token({'!', {{'!', -2.0f}, {'!', -2.0f}, {'z', -3.0f}}});
    live.finish(FinishReason::kLength, 2);
  };
  for (const bool stream : {true, false}) {
    RawClient peer = client();
    peer.send(chat(fmt::format(R"("max_tokens":3,"logprobs":true,"top_logprobs":2,"stream":{})", stream)));
    const ScriptedRequest live = runtime_.next();
    EXPECT_EQ(live.request.logprobs, 2u);
    answer(live);
    Json content = Json::array();
    std::string joined;
    if (stream) {
      for (const Json& event : events_of(peer)) {
        if (!event.is_object()) continue;
        const Json& choice = event["choices"][0];
        joined += choice["delta"].value("content", "");
        if (choice["logprobs"].is_null()) continue;
        for (const Json& entry : choice["logprobs"]["content"]) content.push_back(entry);
      }
    } else {
      const Json choice = json_of(peer.read_answer().body)["choices"][0];
      joined = choice["message"]["content"];
      content = choice["logprobs"]["content"];
    }
    EXPECT_EQ(joined, "\u00e9!");
    ASSERT_EQ(content.size(), 3u);
    EXPECT_EQ(content[0]["token"], "\ufffd");
    EXPECT_EQ(content[0]["bytes"], Json::array({0xC3}));
    EXPECT_EQ(content[1]["logprob"], -0.25f);
    EXPECT_EQ(content[1]["top_logprobs"][0]["token"], "y");
    EXPECT_EQ(content[2]["token"], "!");
    EXPECT_EQ(content[2]["top_logprobs"].size(), 2u);
  }
  RawClient peer = client();
  peer.send(text(R"("max_tokens":3,"logprobs":2)"));
  answer(runtime_.next());
  const Json logprobs = json_of(peer.read_answer().body)["choices"][0]["logprobs"];
  EXPECT_EQ(logprobs["tokens"], Json::array({"\ufffd", "\ufffd", "!"}));
  EXPECT_EQ(logprobs["token_logprobs"], Json::array({-0.5f, -0.25f, -2.0f}));
  EXPECT_EQ(logprobs["text_offset"], Json::array({0, 1, 2}));
  EXPECT_EQ(logprobs["top_logprobs"][2], Json::object({{"!", -2.0f}, {"z", -3.0f}}));
}

TEST_F(ServerTest, StopStringsAreFoundAcrossTokens) {
  for (const bool stream : {true, false}) {
    RawClient peer = client();
    peer.send(text(fmt::format(R"("max_tokens":50,"stream":{},"stop":["END","zz"])", stream)));
    const ScriptedRequest live = runtime_.next();
    live.say("xENyEND");
    EXPECT_TRUE(runtime_.is_cancelled_within_ten_seconds(live.request.id));
    Json last;
    if (stream) {
      const std::vector<Json> events = events_of(peer);
      EXPECT_THAT(texts_of(events), ElementsAre("x", "", "", "ENy", "", "", ""));
      last = events[6]["choices"][0];
    } else {
      const Json json = json_of(peer.read_answer().body);
      last = json["choices"][0];
      EXPECT_EQ(last["text"], "xENy");
      EXPECT_EQ(json["usage"]["completion_tokens"], 7);
    }
    EXPECT_EQ(last["finish_reason"], "stop");
    EXPECT_EQ(last["stop_reason"], "END");
  }
  // For its client such a request is finished, not cancelled.
  const Json metrics = json_of(ask("GET /v1/metrics HTTP/1.1\r\n\r\n").body);
  EXPECT_EQ(metrics["requests"]["finished"], 2);
  EXPECT_EQ(metrics["requests"]["cancelled"], 0);
}

TEST_F(ServerTest, WhatMightHaveBecomeAStopStringComesWithTheEnd) {
  RawClient peer = client();
  peer.send(text(R"("max_tokens":3,"stream":true,"stop":"END")"));
  const ScriptedRequest live = runtime_.next();
  live.say("xEN");
  live.finish(FinishReason::kLength);
  EXPECT_THAT(texts_of(events_of(peer)), ElementsAre("x", "", "EN"));
}

TEST_F(ServerTest, TokensSampledAfterAStopStringAreDropped) {
  RawClient peer = client();
  peer.send(text(R"("max_tokens":50,"stop":"b")"));
  const ScriptedRequest live = runtime_.next();
  live.say("abcdef");
  const Json json = json_of(peer.read_answer().body);
  EXPECT_EQ(json["choices"][0]["text"], "a");
  EXPECT_EQ(json["usage"]["completion_tokens"], 2);
}

TEST_F(ServerTest, AClientThatGoesAwayCancelsItsRequestOnly) {
  RawClient stays = client();
  stays.send(text(R"("max_tokens":4,"stream":true)"));
  const ScriptedRequest kept = runtime_.next();
  kept.say("a");
  for (const bool stream : {true, false}) {
    for (int i = 0; i < 10; ++i) {
      RawClient leaves = client();
      leaves.send(text(fmt::format(R"("max_tokens":40,"stream":{})", stream)));
      const ScriptedRequest dropped = runtime_.next();
      if (i % 2 == 0) dropped.say("some");
      i % 3 == 0 ? leaves.reset() : leaves.close();
      EXPECT_TRUE(runtime_.is_cancelled_within_ten_seconds(dropped.request.id));
      dropped.say("late");
    }
  }
  kept.say("bcd");
  kept.finish(FinishReason::kLength);
  EXPECT_THAT(texts_of(events_of(stays)), ElementsAre("a", "b", "c", "d"));
  EXPECT_EQ(json_of(ask("GET /v1/metrics HTTP/1.1\r\n\r\n").body)["requests"]["cancelled"], 20);
}

TEST_F(ServerTest, RefusalsOfTheEngineBecomeStatuses) {
  const struct {
    ErrorCode code;
    int status;
    const char* type;
    bool retry;
  } cases[] = {{ErrorCode::kResourceExhausted, 429, "RateLimitError", true},
               {ErrorCode::kUnavailable, 503, "ServiceUnavailableError", true},
               {ErrorCode::kInvalidArgument, 400, "BadRequestError", false},
               {ErrorCode::kInternal, 500, "InternalServerError", false}};
  for (const auto& c : cases) {
    runtime_.refuse_after(0, Error{c.code, "because"});
    for (const char* stream : {"true", "false"}) {
      const auto answer = ask(text(fmt::format(R"("stream":{})", stream)));
      EXPECT_EQ(answer.status, c.status);
      EXPECT_EQ(RawClient::header(answer.head, "Retry-After").has_value(), c.retry);
      const Json error = json_of(answer.body)["error"];
      EXPECT_EQ(error["message"], "because");
      EXPECT_EQ(error["type"], c.type);
      EXPECT_EQ(error["code"], c.status);
      EXPECT_TRUE(error.contains("param"));
    }
  }
}

TEST_F(ServerTest, ARefusedPromptTakesItsSiblingsAlong) {
  runtime_.refuse_after(1, Error{ErrorCode::kResourceExhausted, "the queue is full"});
  EXPECT_EQ(ask(post("/v1/completions", R"({"prompt":["a","b"]})")).status, 429);
  EXPECT_TRUE(runtime_.is_cancelled_within_ten_seconds(runtime_.next().request.id));
}

TEST_F(ServerTest, FailuresAreStatusesBeforeTheHeadAndEventsAfterIt) {
  const Error late{ErrorCode::kDeadlineExceeded, "the deadline passed"};
  RawClient whole = client();
  whole.send(text(R"("max_tokens":9)"));
  runtime_.next().finish(FinishReason::kFailed, 0, late);
  const auto answer = whole.read_answer();
  EXPECT_EQ(answer.status, 504);
  EXPECT_EQ(json_of(answer.body)["error"]["message"], "the deadline passed");

  RawClient streamed = client();
  streamed.send(text(R"("max_tokens":9,"stream":true)"));
  const ScriptedRequest live = runtime_.next();
  live.say("a");
  live.finish(FinishReason::kFailed, 0, late);
  const std::vector<Json> events = events_of(streamed);
  ASSERT_EQ(events.size(), 2u);  // and no [DONE]
  EXPECT_EQ(events[1]["error"]["code"], 504);
  EXPECT_TRUE(streamed.at_end());

  RawClient drained = client();
  drained.send(text());
  runtime_.next().finish(FinishReason::kCancelled);  // not by its client: the runtime is going down
  EXPECT_EQ(drained.read_answer().status, 503);
}

TEST_F(ServerTest, UnknownPathsAndMethodsGetErrorObjects) {
  const auto nowhere = ask("GET /v1/nothing HTTP/1.1\r\n\r\n");
  EXPECT_EQ(nowhere.status, 404);
  EXPECT_THAT(json_of(nowhere.body)["error"]["message"].get<std::string>(), HasSubstr("/v1/nothing"));
  const auto wrong = ask("GET /v1/completions HTTP/1.1\r\n\r\n");
  EXPECT_EQ(wrong.status, 405);
  EXPECT_EQ(RawClient::header(wrong.head, "Allow"), "POST");
  EXPECT_EQ(ask("POST /healthz HTTP/1.1\r\nContent-Length: 0\r\n\r\n").status, 405);
  const auto malformed = ask("nonsense\r\n\r\n");
  EXPECT_EQ(malformed.status, 400);
  EXPECT_EQ(json_of(malformed.body)["error"]["type"], "BadRequestError");
  const auto huge = ask("POST /v1/completions HTTP/1.1\r\nContent-Length: 1073741824\r\n\r\n0123456789");
  EXPECT_EQ(huge.status, 413);
  EXPECT_EQ(json_of(huge.body)["error"]["code"], 413);
  RawClient head = client();
  head.send("HEAD /v1/models HTTP/1.1\r\n\r\n");
  EXPECT_EQ(head.read_answer(true).status, 200);
}

TEST_F(ServerTest, ContentTypeMustBeJsonWhereItIsSaid) {
  const auto ask_as = [&](std::string_view header) {
    return ask(fmt::format("POST /v1/completions HTTP/1.1\r\n{}Content-Length: 2\r\n\r\n{{}}", header));
  };
  EXPECT_THAT(ask_as("Content-Type: text/plain\r\n").body, HasSubstr("expected application/json, got text/plain"));
  for (const char* fine :
       {"", "Content-Type: application/json\r\n", "Content-Type: Application/JSON ; charset=utf-8\r\n"}) {
    EXPECT_THAT(ask_as(fine).body, HasSubstr("`prompt`: missing")) << fine;
  }
}

TEST_F(ServerTest, AnswersWithoutTheKeyAreRefused) {
  options_.api_key = "secret";
  start();
  for (const char* header : {"", "Authorization: Bearer wrong\r\n", "Authorization: Bearer secre\r\n",
                             "Authorization: secret\r\n", "Authorization: Bearer \r\n"}) {
    const auto refused = ask(fmt::format("GET /v1/models HTTP/1.1\r\n{}\r\n", header));
    EXPECT_EQ(refused.status, 401) << header;
    EXPECT_EQ(json_of(refused.body)["error"]["type"], "AuthenticationError");
  }
  EXPECT_EQ(ask("GET /v1/models HTTP/1.1\r\nAuthorization: Bearer secret\r\n\r\n").status, 200);
  EXPECT_EQ(ask("GET /healthz HTTP/1.1\r\n\r\n").status, 200);  // probes have no key
  EXPECT_EQ(ask("GET / HTTP/1.1\r\n\r\n").status, 200);         // the page asks for it
}

TEST_F(ServerTest, DrainingRefusesNewWorkAndFinishesTheOld) {
  RawClient old = client();
  old.send(text(R"("max_tokens":2,"stream":true)"));
  const ScriptedRequest live = runtime_.next();
  server_->stop_accepting();
  const auto refused = ask(text());
  EXPECT_EQ(refused.status, 503);
  EXPECT_TRUE(RawClient::header(refused.head, "Retry-After").has_value());
  const auto health = ask("GET /healthz HTTP/1.1\r\n\r\n");
  EXPECT_EQ(health.status, 503);
  EXPECT_EQ(json_of(health.body)["status"], "draining");
  EXPECT_EQ(ask("GET /health HTTP/1.1\r\n\r\n").status, 503);
  live.say("ab");
  live.finish(FinishReason::kLength);
  EXPECT_THAT(texts_of(events_of(old)), ElementsAre("a", "b"));
  EXPECT_TRUE(server_->wait_idle(std::chrono::seconds(10)));
}

TEST_F(ServerTest, RequestsOutliveTheServerUnharmed) {
  RawClient peer = client();
  peer.send(text(R"("max_tokens":9,"stream":true)"));
  const ScriptedRequest live = runtime_.next();
  server_.reset();
  EXPECT_TRUE(runtime_.is_cancelled_within_ten_seconds(live.request.id));
  live.say("late");
}

TEST_F(ServerTest, LargeBodiesAreReadElsewhereAndAnsweredAlike) {
  model_.config.max_positions = 1 << 20;
  start();
  RawClient peer = client();
  peer.send(post("/v1/completions", fmt::format(R"({{"prompt":"{}","max_tokens":1}})", std::string(200'000, 'a'))));
  const ScriptedRequest live = runtime_.next();
  EXPECT_EQ(live.request.prompt.size(), 200'000u);
  live.say("x");
  live.finish(FinishReason::kLength);
  EXPECT_EQ(json_of(peer.read_answer().body)["choices"][0]["text"], "x");
  const auto refused =
      ask(post("/v1/completions", fmt::format(R"({{"prompt":5,"x":"{}"}})", std::string(200'000, 'a'))));
  EXPECT_EQ(refused.status, 400);
}

TEST_F(ServerTest, IdleStreamsLeaveRoomForOthers) {
  std::vector<RawClient> peers;
  std::vector<ScriptedRequest> live;
  for (int i = 0; i < 100; ++i) {
    peers.push_back(client());
    peers.back().send(text(R"("max_tokens":2,"stream":true)"));
    live.push_back(runtime_.next());
  }
  for (int i = 0; i < 10; ++i) EXPECT_EQ(ask("GET /healthz HTTP/1.1\r\n\r\n").status, 200);
  for (const ScriptedRequest& request : live) {
    request.say("ab");
    request.finish(FinishReason::kLength);
  }
  for (RawClient& peer : peers) EXPECT_THAT(texts_of(events_of(peer)), ElementsAre("a", "b"));
}

TEST_F(ServerTest, ListsItsModel) {
  const Json json = json_of(ask("GET /v1/models HTTP/1.1\r\n\r\n").body);
  EXPECT_EQ(json["object"], "list");
  EXPECT_EQ(json["data"][0]["id"], "nano-mooncake");
  EXPECT_EQ(json["data"][0]["max_model_len"], 256);
}

TEST_F(ServerTest, MetricsHaveTheirFixedNames) {
  const Json json = json_of(ask("GET /v1/metrics HTTP/1.1\r\n\r\n").body);
  EXPECT_EQ(json["schema"], "nano-mooncake/metrics/v1");
  for (const char* name : {"mode", "reuse", "transfer", "queue", "requests", "pool", "tiers", "latency", "workers",
                           "counters", "handovers"}) {
    EXPECT_TRUE(json.contains(name)) << name;
  }
  for (const char* name : {"name", "role", "pid", "state", "restarts", "queued", "running", "utilization"}) {
    EXPECT_TRUE(json["workers"][0].contains(name)) << name;
  }
}

TEST_F(ServerTest, NamesThePortThatIsInUse) {
  ServerOptions same;
  same.http.port = port_;
  const auto second = Server::start(same, model_, runtime_, nullptr);
  ASSERT_FALSE(second.has_value());
  EXPECT_THAT(second.error().message, HasSubstr(std::to_string(port_)));
}

TEST_F(ServerTest, RequestsWithoutASeedDrawDifferentOnes) {
  std::vector<std::uint64_t> seeds;
  for (int i = 0; i < 3; ++i) {
    RawClient peer = client();
    peer.send(text(i == 2 ? R"("seed":42)" : ""));
    seeds.push_back(runtime_.next().request.sampling.seed);
  }
  EXPECT_NE(seeds[0], seeds[1]);
  EXPECT_EQ(seeds[2], 42u);
}

}  // namespace
}  // namespace nmc::http
