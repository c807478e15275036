#include "http/completion_request.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/json.h"

namespace nmc::http {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr const char* kChatBase = R"("model":"m","messages":[{"role":"user","content":"hi"}])";
constexpr const char* kTextBase = R"("model":"m","prompt":"hi")";

ApiResult<CompletionRequest> parse(const std::string& body, Endpoint endpoint) {
  return parse_completion_request(body, endpoint, {.models = {"m", "m-adapted"}, .defaults = {}});
}
ApiResult<CompletionRequest> chat(const std::string& fields) {
  return parse(fmt::format("{{{}{}{}}}", kChatBase, fields.empty() ? "" : ",", fields), Endpoint::kChat);
}
ApiResult<CompletionRequest> text(const std::string& fields) {
  return parse(fmt::format("{{{}{}{}}}", kTextBase, fields.empty() ? "" : ",", fields), Endpoint::kCompletions);
}
std::string why(const ApiResult<CompletionRequest>& result) {
  return result ? "accepted"
                : fmt::format("{} {}: {}", result.error().status, result.error().param, result.error().message);
}
template <typename T = std::string>
std::vector<T> prompts_of(const CompletionRequest& request) {
  std::vector<T> prompts;
  for (const Prompt& prompt : request.prompts) prompts.push_back(std::get<T>(prompt));
  return prompts;
}
std::string nested(std::size_t levels, const char* open, const char* close) {
  std::string out;
  for (std::size_t i = 0; i < levels; ++i) out += open;
  out += "0";
  for (std::size_t i = 0; i < levels; ++i) out += close;
  return out;
}

TEST(CompletionRequest, DefaultsAreOpenAis) {
  const auto request = text("");
  ASSERT_TRUE(request) << why(request);
  EXPECT_THAT(prompts_of(*request), ElementsAre("hi"));
  EXPECT_FALSE(request->max_tokens.has_value());
  EXPECT_EQ(request->sampling.params.temperature, 1.0f);
  EXPECT_EQ(request->sampling.params.top_p, 1.0f);
  EXPECT_EQ(request->sampling.params.top_k, 0u);
  EXPECT_FALSE(request->sampling.seed.has_value());
  EXPECT_FALSE(request->stream || request->include_usage || request->sampling.ignore_eos);
}

TEST(CompletionRequest, TakesWhatItIsGiven) {
  const auto request =
      chat(R"("max_tokens":7,"max_completion_tokens":9,"temperature":0,"top_p":0.5,"top_k":-1,"seed":-3,)"
           R"("stop":["a","\u00e9"],"stream":true,"stream_options":{"include_usage":true,)"
           R"("continuous_usage_stats":true},"ignore_eos":true,"cache_salt":"tenant","n":1,"user":"u")");
  ASSERT_TRUE(request) << why(request);
  EXPECT_EQ(request->max_tokens, 9u);  // the newer name
  EXPECT_EQ(request->sampling.params.temperature, 0.0f);
  EXPECT_EQ(request->sampling.params.top_p, 0.5f);
  EXPECT_EQ(request->sampling.params.top_k, 0u);
  EXPECT_EQ(request->sampling.seed, static_cast<std::uint64_t>(-3));
  EXPECT_THAT(request->stop, ElementsAre("a", "é"));
  EXPECT_TRUE(request->stream && request->include_usage && request->continuous_usage && request->sampling.ignore_eos);
  EXPECT_EQ(request->cache_salt, "tenant");
}

TEST(CompletionRequest, NullMeansAbsent) {
  const auto request =
      chat(R"("max_tokens":null,"max_completion_tokens":null,"temperature":null,"top_p":null,"top_k":null,)"
           R"("seed":null,"stop":null,"stream":null,"stream_options":null,"ignore_eos":null,"n":null,)"
           R"("cache_salt":null,"logprobs":null,"tools":null,"response_format":null)");
  EXPECT_TRUE(request) << why(request);
}

TEST(CompletionRequest, TakesPromptsInAllForms) {
  const auto with = [](const char* prompt) {
    return parse(fmt::format(R"({{"prompt":{}}})", prompt), Endpoint::kCompletions);
  };
  EXPECT_THAT(prompts_of(*with(R"("")")), ElementsAre(""));
  EXPECT_THAT(prompts_of(*with(R"(["a","b"])")), ElementsAre("a", "b"));
  using Ids = std::vector<engine::TokenId>;
  EXPECT_THAT(prompts_of<Ids>(*with("[1,2]")), ElementsAre(Ids{1, 2}));
  EXPECT_THAT(prompts_of<Ids>(*with("[[1],[2,4294967295]]")), ElementsAre(Ids{1}, Ids{2, 4294967295u}));
  for (const char* bad :
       {"[]", "[[]]", "[1,\"a\"]", "[\"a\",1]", "[[1],\"a\"]", "[[1],2]", "[-1]", "[1.5]", "[4294967296]", "[true]",
        "[null]", "[[\"a\"]]", "5", "true", "{}", "null", "[{}]", "[1e3]"}) {
    const auto request = with(bad);
    ASSERT_FALSE(request) << bad;
    EXPECT_EQ(request.error().status, 400) << bad;
    EXPECT_EQ(request.error().param, "prompt") << bad;
    EXPECT_THAT(request.error().message, HasSubstr("`prompt")) << bad;
  }
  std::string many = "[[1]";
  for (std::size_t i = 0; i < kPromptsMax; ++i) many += ",[1]";
  EXPECT_THAT(why(with((many + "]").c_str())), HasSubstr("at most 256 prompts"));
}

TEST(CompletionRequest, TakesMessagesInAllForms) {
  const auto request =
      parse(R"({"messages":[{"role":"system","content":"s"},{"role":"developer","content":"d","name":"x"},)"
            R"({"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]},)"
            R"({"role":"assistant","content":"","tool_calls":[]},{"role":"user","content":[]}]})",
            Endpoint::kChat);
  ASSERT_TRUE(request) << why(request);
  std::vector<std::string> seen;
  for (const Json& message : request->chat.messages) {
    seen.push_back(message["role"].get<std::string>() + ":" + dump_json(message["content"]));
  }
  EXPECT_THAT(seen, ElementsAre("system:\"s\"", "system:\"d\"",
                                R"(user:[{"type":"text","text":"a"},{"type":"text","text":"b"}])", "assistant:\"\"",
                                "user:[]"));

  for (const char* bad : {"[]",
                          "{}",
                          "\"hi\"",
                          "null",
                          "[1]",
                          "[null]",
                          "[[]]",
                          R"([{"role":"user"}])",
                          R"([{"role":"user","content":null}])",
                          R"([{"content":"a"}])",
                          R"([{"role":1,"content":"a"}])",
                          R"([{"role":"robot","content":"a"}])",
                          R"([{"role":"tool"}])",
                          R"([{"role":"tool","content":"a","tool_call_id":5}])",
                          R"([{"role":"user","content":"a","name":["n"]}])",
                          R"([{"role":"assistant","content":null}])",
                          R"([{"role":"assistant","content":"a","function_call":{"name":"f"}}])",
                          R"([{"role":"assistant","tool_calls":{}}])",
                          R"([{"role":"assistant","tool_calls":[{"function":{}}]}])",
                          R"([{"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":"{"}}]}])",
                          R"([{"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":"[1]"}}]}])",
                          R"([{"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":5}}]}])",
                          R"([{"role":"user","content":5}])",
                          R"([{"role":"user","content":["a"]}])",
                          R"([{"role":"user","content":[{"type":"image_url"}]}])",
                          R"([{"role":"user","content":[{"type":"text"}]}])",
                          R"([{"role":"user","content":[{"text":"a"}]}])",
                          R"([{"role":"user","content":{"type":"text","text":"a"}}])",
                          R"([{"role":"assistant","content":"a","tool_calls":[{}]}])"}) {
    const auto refused = parse(fmt::format(R"({{"messages":{}}})", bad), Endpoint::kChat);
    ASSERT_FALSE(refused) << bad;
    EXPECT_EQ(refused.error().status, 400) << bad;
    EXPECT_EQ(refused.error().param, "messages") << bad;
    EXPECT_THAT(refused.error().message, HasSubstr("`messages")) << bad;
  }
}

TEST(CompletionRequest, RefusesWrongValuesByName) {
  const struct {
    const char* param;
    std::vector<const char*> values;
  } cases[] = {
      {"max_tokens", {"0", "-1", "1.5", "\"5\"", "true", "false", "[]", "{}", "1e30", "1e9"}},
      {"temperature", {"-1", "-0.001", "2.001", "1e308", "\"1\"", "true", "[]"}},
      {"top_p", {"0", "-0.5", "1.01", "\"1\"", "true"}},
      {"top_k", {"-2", "1.5", "\"1\"", "true", "4294967296", "9223372036854775808"}},
      {"seed", {"1.5", "\"1\"", "true", "9223372036854775808", "-9223372036854775809"}},
      {"n", {"0", "-1", "257", "1.0", "\"1\"", "true"}},
      {"min_p", {"-0.1", "1.1", "\"0\"", "true"}},
      {"presence_penalty", {"-2.1", "2.1", "\"0\"", "true", "[]"}},
      {"frequency_penalty", {"-2.1", "2.1", "\"0\""}},
      {"repetition_penalty", {"0", "-1", "2.1", "\"1\""}},
      {"logit_bias",
       {"[]", "1", "\"x\"", R"({"a":1})", R"({"-1":1})", R"({"1.0":1})", R"({"4294967296":1})", R"({"1":101})",
        R"({"1":"1"})", R"({"":1})", R"({"1":null})"}},
      {"min_tokens", {"-1", "1.5", "\"1\"", "true"}},
      {"stop_token_ids", {"1", "[-1]", "[1.5]", "[\"1\"]", "[4294967296]", "{}"}},
      {"logprobs", {"-1", "\"1\"", "21", "1.5", "[]"}},
      {"skip_special_tokens", {"0", "\"no\""}},
      {"stop", {"\"\"", "[\"\"]", "[1]", "1", "true", "{}", "[null]", "[[\"a\"]]"}},
      {"stream", {"1", "\"true\"", "[]"}},
      {"ignore_eos", {"1", "\"true\""}},
      {"cache_salt", {"1", "true", "[]"}},
      {"model", {"1", "true", "[]"}},
  };
  for (const Endpoint endpoint : {Endpoint::kChat, Endpoint::kCompletions}) {
    for (const auto& c : cases) {
      for (const char* value : c.values) {
        const std::string body =
            fmt::format(R"({{"messages":[{{"role":"user","content":"a"}}],"prompt":"a","{}":{}}})", c.param, value);
        const auto request = parse(body, endpoint);
        ASSERT_FALSE(request) << body;
        EXPECT_EQ(request.error().status, 400) << body;
        EXPECT_EQ(request.error().param, c.param) << body;
        EXPECT_THAT(request.error().message, HasSubstr(c.param));
      }
    }
  }
  EXPECT_THAT(why(chat(R"("max_completion_tokens":0)")), HasSubstr("400 max_completion_tokens"));
  EXPECT_THAT(why(text(fmt::format(R"("cache_salt":"{}")", std::string(1025, 'x')))),
              HasSubstr("at most 1024 bytes, got 1025"));
  EXPECT_THAT(why(text(fmt::format(R"("stop":"{}")", std::string(1025, 'x')))), HasSubstr("one of 1025"));
  EXPECT_THAT(why(text(R"("stop":["1","2","3","4","5","6","7","8","9","a","b","c","d","e","f","g","h"])")),
              HasSubstr("at most 16"));
}

TEST(CompletionRequest, ReadsHowTokensAreDrawn) {
  const auto request = text(R"("min_p":0.1,"presence_penalty":-2,"frequency_penalty":0.5,"repetition_penalty":1.5,)"
                            R"("logit_bias":{"7":-100,"0":2.5},"min_tokens":3,"max_tokens":9,"stop_token_ids":[4,5],)"
                            R"("n":3,"logprobs":0,"skip_special_tokens":false)");
  ASSERT_TRUE(request) << why(request);
  const SamplingFields& sampling = request->sampling;
  EXPECT_EQ(sampling.params.min_p, 0.1f);
  EXPECT_EQ(sampling.params.presence_penalty, -2.0f);
  EXPECT_EQ(sampling.params.frequency_penalty, 0.5f);
  EXPECT_EQ(sampling.params.repetition_penalty, 1.5f);
  ASSERT_EQ(sampling.params.logit_bias.size(), 2u);
  EXPECT_EQ(sampling.params.logit_bias[0].id, 7u);
  EXPECT_EQ(sampling.params.logit_bias[0].bias, -100.0f);
  EXPECT_EQ(sampling.min_tokens, 3u);
  EXPECT_THAT(sampling.stop_ids, ElementsAre(4, 5));
  EXPECT_EQ(sampling.n, 3u);
  EXPECT_EQ(sampling.logprobs, 0u);
  EXPECT_FALSE(request->skip_special_tokens);
  EXPECT_EQ(chat(R"("logprobs":true,"top_logprobs":4)")->sampling.logprobs, 4u);
  EXPECT_EQ(chat(R"("logprobs":true)")->sampling.logprobs, 0u);
  EXPECT_EQ(chat(R"("logprobs":false)")->sampling.logprobs, std::nullopt);
  EXPECT_EQ(text("")->sampling.logprobs, std::nullopt);
}

TEST(CompletionRequest, FieldsThatDependOnOthersAreCheckedTogether) {
  EXPECT_THAT(why(text(R"("min_tokens":3,"max_tokens":2)")), HasSubstr("400 min_tokens"));
  EXPECT_THAT(why(chat(R"("top_logprobs":3)")), HasSubstr("400 top_logprobs"));
  EXPECT_THAT(why(parse(R"({"prompt":["a","b"],"n":129})", Endpoint::kCompletions)), HasSubstr("400 n: "));
  EXPECT_EQ(why(parse(R"({"prompt":["a","b"],"n":128})", Endpoint::kCompletions)), "accepted");
}

TEST(CompletionRequest, WhatIsLeftOutIsAsTheModelsMakersSuggest) {
  const Served served{
      .models = {"m"},
      .defaults = {.temperature = 0.6f, .top_p = 0.9f, .top_k = 20, .min_p = 0.05f, .repetition_penalty = 1.1f}};
  const auto bare = parse_completion_request(R"({"prompt":"a"})", Endpoint::kCompletions, served);
  ASSERT_TRUE(bare);
  EXPECT_EQ(bare->sampling.params.temperature, 0.6f);
  EXPECT_EQ(bare->sampling.params.top_p, 0.9f);
  EXPECT_EQ(bare->sampling.params.top_k, 20u);
  EXPECT_EQ(bare->sampling.params.min_p, 0.05f);
  EXPECT_EQ(bare->sampling.params.repetition_penalty, 1.1f);
  const auto said =
      parse_completion_request(R"({"prompt":"a","temperature":1,"top_p":1,"top_k":0,"min_p":0,"repetition_penalty":1})",
                               Endpoint::kCompletions, served);
  ASSERT_TRUE(said);
  EXPECT_EQ(said->sampling.params.temperature, 1.0f);
  EXPECT_EQ(said->sampling.params.top_k, 0u);
  EXPECT_FALSE(said->sampling.params.changes_logits());
}

TEST(CompletionRequest, TakesHugeMaxTokensForTheContextToCut) {
  for (const char* huge : {"1000000000", "9223372036854775807", "9223372036854775808", "18446744073709551615"}) {
    const auto request = text(fmt::format(R"("max_tokens":{})", huge));
    ASSERT_TRUE(request) << why(request);
    EXPECT_EQ(std::to_string(*request->max_tokens), huge);
  }
}

TEST(CompletionRequest, StreamOptionsNeedAStream) {
  EXPECT_THAT(why(chat(R"("stream_options":{"include_usage":true})")), HasSubstr("400 stream_options"));
  EXPECT_THAT(why(chat(R"("stream":false,"stream_options":{})")), HasSubstr("400 stream_options"));
  EXPECT_THAT(why(chat(R"("stream":true,"stream_options":[])")), HasSubstr("400 stream_options"));
  EXPECT_THAT(why(chat(R"("stream":true,"stream_options":{"include_usage":1})")), HasSubstr("400 stream_options"));
  EXPECT_EQ(why(chat(R"("stream":true,"stream_options":{"other":1})")), "accepted");
}

TEST(CompletionRequest, UnknownModelIsNotFound) {
  const auto request = parse(R"({"model":"gpt","prompt":"a"})", Endpoint::kCompletions);
  ASSERT_FALSE(request);
  EXPECT_EQ(request.error().status, 404);
  EXPECT_EQ(request.error().param, "model");
  EXPECT_THAT(request.error().message, HasSubstr("\"gpt\""));
  EXPECT_EQ(why(parse(R"({"prompt":"a"})", Endpoint::kCompletions)), "accepted");
  EXPECT_EQ(parse(R"({"prompt":"a"})", Endpoint::kCompletions)->model, 0u);
  EXPECT_EQ(parse(R"({"model":"m-adapted","prompt":"a"})", Endpoint::kCompletions)->model, 1u);
}

TEST(CompletionRequest, RefusesByNameWhatWouldChangeTheAnswer) {
  for (const char* field : {R"("tool_choice":"required")", R"("tool_choice":{"type":"function"})",
                            R"("response_format":{"type":"json_object"})", R"("best_of":2)", R"("functions":[1])",
                            R"("audio":{})", R"("modalities":["audio"])", R"("echo":true)", R"("chat_template":"x")"}) {
    const auto request = chat(field);
    ASSERT_FALSE(request) << field;
    EXPECT_EQ(request.error().status, 400);
    EXPECT_THAT(field, HasSubstr(fmt::format("\"{}\":", request.error().param)));
    EXPECT_THAT(request.error().message, HasSubstr("not supported"));
  }
  for (const char* field : {R"("suffix":"x")", R"("priority":1)", R"("structured_outputs":{"regex":"a"})"}) {
    EXPECT_THAT(why(text(field)), HasSubstr("not supported")) << field;
  }
}

TEST(CompletionRequest, AcceptsTheSameFieldsWhenTheyAskForNothing) {
  for (const char* field : {R"("logprobs":false)", R"("top_logprobs":0)", R"("tools":[])", R"("tool_choice":"auto")",
                            R"("tool_choice":"none")", R"("response_format":{"type":"text"})", R"("logit_bias":{})",
                            R"("frequency_penalty":0)", R"("presence_penalty":0.0)", R"("repetition_penalty":1.0)",
                            R"("best_of":1)", R"("functions":[])", R"("modalities":["text"])", R"("echo":false)"}) {
    EXPECT_EQ(why(chat(field)), "accepted") << field;
  }
  EXPECT_EQ(why(text(R"("best_of":1,"suffix":"","logprobs":null,"unheard_of":{"a":[1]},"metadata":{"x":"y"})")),
            "accepted");
}

TEST(CompletionRequest, LogprobsOfAPromptAreCountedAndNotStreamed) {
  EXPECT_FALSE(text("")->sampling.prompt_logprobs);
  EXPECT_EQ(text(R"("prompt_logprobs":0)")->sampling.prompt_logprobs, 0u);
  EXPECT_EQ(chat(R"("prompt_logprobs":20)")->sampling.prompt_logprobs, 20u);
  for (const char* value : {"-1", "21", "true", "1.5"}) {
    EXPECT_EQ(text(fmt::format(R"("prompt_logprobs":{})", value)).error().param, "prompt_logprobs") << value;
  }
  EXPECT_THAT(why(text(R"("prompt_logprobs":1,"stream":true)")), HasSubstr("`stream` is false"));
  EXPECT_EQ(why(text(R"("echo":true,"logprobs":1,"stream":true)")), "accepted");
}

TEST(CompletionRequest, ReadsWhatShapesPromptAndAnswer) {
  const auto request =
      text(R"("echo":true,"return_token_ids":true,"include_stop_str_in_output":true,"truncate_prompt_tokens":-1,)"
           R"("add_special_tokens":false,"request_id":"my-id","allowed_token_ids":[5,6],"bad_words":["x","y z"])");
  ASSERT_TRUE(request) << why(request);
  EXPECT_TRUE(request->echo && request->return_token_ids && request->include_stop);
  EXPECT_EQ(request->truncate_prompt_tokens, kToWhatFits);
  EXPECT_FALSE(request->add_special_tokens);
  EXPECT_EQ(request->request_id, "my-id");
  EXPECT_THAT(request->sampling.params.allowed_ids, ElementsAre(5, 6));
  EXPECT_THAT(request->sampling.bad_words, ElementsAre("x", "y z"));
  const auto plain = text("");
  EXPECT_FALSE(plain->echo || plain->return_token_ids || plain->include_stop || plain->truncate_prompt_tokens);
  EXPECT_TRUE(plain->add_special_tokens);
  EXPECT_FALSE(chat("")->add_special_tokens);  // the template says what goes in front
  EXPECT_TRUE(chat(R"("add_special_tokens":true)")->add_special_tokens);
}

TEST(CompletionRequest, RefusesWrongShapesOfThoseByName) {
  const std::string long_id(kRequestIdBytesMax + 1, 'x');
  for (const std::string& field :
       {std::string(R"("echo":1)"), std::string(R"("return_token_ids":"yes")"),
        std::string(R"("include_stop_str_in_output":0)"), std::string(R"("truncate_prompt_tokens":0)"),
        std::string(R"("truncate_prompt_tokens":-2)"), std::string(R"("truncate_prompt_tokens":1.5)"),
        std::string(R"("add_special_tokens":"no")"), std::string(R"("request_id":"")"),
        std::string(R"("request_id":"a b")"), std::string(R"("request_id":"a\r\nX-Evil: 1")"),
        std::string(R"("request_id":7)"), fmt::format(R"("request_id":"{}")", long_id),
        std::string(R"("allowed_token_ids":[])"), std::string(R"("allowed_token_ids":[-1])"),
        std::string(R"("allowed_token_ids":5)"), std::string(R"("bad_words":"x")"), std::string(R"("bad_words":[""])"),
        std::string(R"("bad_words":[1])")}) {
    const auto request = text(field);
    ASSERT_FALSE(request) << field;
    EXPECT_EQ(request.error().status, 400);
    EXPECT_THAT(field, HasSubstr(fmt::format("\"{}\":", request.error().param)));
  }
}

// A cut at a small probability isn't a cut at none.
TEST(CompletionRequest, NumbersTooSmallForAFloatAreNotZero) {
  const auto request = text(R"("top_p":1e-300,"temperature":1e-300)");
  ASSERT_TRUE(request) << why(request);
  EXPECT_GT(request->sampling.params.top_p, 0.0f);
  EXPECT_GT(request->sampling.params.temperature, 0.0f);
}

TEST(CompletionRequest, RefusesWhatIsNotJson) {
  for (const char* body :
       {"", "hello", "{", "[]", "5", "null", "\"x\"", R"({"temperature":NaN})", R"({"a":1}x)",
        R"({"model":"m","model":"m"})", "{\"prompt\":\"\xff\"}", "{\"prompt\":\"\xc3\"}", "\xef\xbb\xbf"}) {
    const auto request = parse(body, Endpoint::kCompletions);
    ASSERT_FALSE(request) << body;
    EXPECT_EQ(request.error().status, 400) << body;
    EXPECT_TRUE(is_valid_utf8(error_json(request.error()))) << body;
  }
}

TEST(CompletionRequest, KeepsLoneSurrogateEscapesAsReplacementCharacters) {
  const auto request = parse(R"({"prompt":"a\ud83d b"})", Endpoint::kCompletions);
  ASSERT_TRUE(request) << why(request);
  EXPECT_THAT(prompts_of(*request), ElementsAre("a\xEF\xBF\xBD b"));
}

TEST(CompletionRequest, RefusesDeepNestingAnywhere) {
  for (const std::size_t levels : {100u, 1'000u, 10'000u, 1'000'000u}) {
    for (const char* field : {"x", "tools", "messages", "metadata", "prompt"}) {
      for (const auto& [open, close] : {std::pair("[", "]"), std::pair(R"({"a":)", "}")}) {
        const auto request =
            text(fmt::format(R"("{}":{})", field == std::string("prompt") ? "y" : field, nested(levels, open, close)));
        ASSERT_FALSE(request);
        EXPECT_THAT(why(request), HasSubstr("nesting too deep"));
      }
    }
  }
  EXPECT_EQ(why(text(fmt::format(R"("x":{})", nested(60, "[", "]")))), "accepted");
}

}  // namespace
}  // namespace nmc::http
