#include "http/token_routes.h"

#include "http/server_test_support.h"

namespace nmc::http {
namespace {

using ::testing::HasSubstr;

class TokenRoutesTest : public ServerTest {
 protected:
  Json tokenize(std::string_view body) {
    const auto answer = ask(post("/tokenize", body));
    EXPECT_EQ(answer.status, 200) << answer.body;
    return json_of(answer.body);
  }
};

TEST_F(TokenRoutesTest, CountsAText) {
  const Json json = tokenize(R"({"prompt":"hi","add_special_tokens":true})");
  EXPECT_EQ(json["tokens"], Json::array({'h', 'i'}));
  EXPECT_EQ(json["count"], 2);
  EXPECT_EQ(json["max_model_len"], 256);
  EXPECT_TRUE(json.at("token_strs").is_null());
  EXPECT_EQ(tokenize(R"({"prompt":""})")["count"], 0);
}

TEST_F(TokenRoutesTest, TellsTextsOfTokensOnRequest) {
  EXPECT_EQ(tokenize("{\"prompt\":\"a\\u00e9\",\"return_token_strs\":true}")["token_strs"],
            Json::array({"a", "\ufffd", "\ufffd"}));
}

// What a chat completion would be given: the template's markers are tokens, a message's are text.
TEST_F(TokenRoutesTest, CountsAConversationAsAChatWouldSeeIt) {
  const char* const messages = R"("messages":[{"role":"user","content":"<end>"}])";
  for (const char* flags : {"", R"(,"add_generation_prompt":false)"}) {
    const Json json = tokenize(fmt::format("{{{}{}}}", messages, flags));
    net::RawClient peer = client();
    peer.send(post("/v1/chat/completions", fmt::format("{{{}{}}}", messages, flags)));
    EXPECT_EQ(json["tokens"], Json(runtime_.next().request.prompt));
  }
}

TEST_F(TokenRoutesTest, GivesTextBack) {
  const auto answer = ask(post("/detokenize", R"({"tokens":[104,105,257]})"));
  EXPECT_EQ(json_of(answer.body), Json::object({{"prompt", "hi" + std::string(model_.tokenizer->token_text(257))}}));
  EXPECT_EQ(json_of(ask(post("/detokenize", R"({"tokens":[]})")).body)["prompt"], "");
}

TEST_F(TokenRoutesTest, RefusesByName) {
  const struct {
    const char* path;
    const char* body;
    int status;
    const char* param;
  } cases[] = {
      {"/tokenize", "{}", 400, "prompt"},
      {"/tokenize", R"({"prompt":5})", 400, "prompt"},
      {"/tokenize", R"({"prompt":["a"]})", 400, "prompt"},
      {"/tokenize", R"({"prompt":"a","messages":[{"role":"user","content":"a"}]})", 400, "prompt"},
      {"/tokenize", R"({"messages":[]})", 400, "messages"},
      {"/tokenize", R"({"messages":[{"role":"user","content":"a"}],"tools":[{}]})", 400, "tools"},
      {"/tokenize", R"({"messages":[{"role":"user","content":"a"}],"chat_template":"x"})", 400, "chat_template"},
      {"/tokenize", R"({"prompt":"a","model":"other"})", 404, "model"},
      {"/tokenize", R"({"prompt":"a","add_special_tokens":1})", 400, "add_special_tokens"},
      {"/tokenize", R"({"messages":[{"role":"user","content":"a"}],"add_special_tokens":1})", 400,
       "add_special_tokens"},
      {"/tokenize", R"({"prompt":"a","return_token_strs":"yes"})", 400, "return_token_strs"},
      {"/detokenize", "{}", 400, "tokens"},
      {"/detokenize", R"({"tokens":"a"})", 400, "tokens"},
      {"/detokenize", R"({"tokens":[-1]})", 400, "tokens"},
      {"/detokenize", R"({"tokens":[1000000]})", 400, "tokens"},
      {"/detokenize", R"({"tokens":[1],"model":"other"})", 404, "model"},
  };
  for (const auto& c : cases) {
    const auto answer = ask(post(c.path, c.body));
    EXPECT_EQ(answer.status, c.status) << c.body;
    const Json error = json_of(answer.body)["error"];
    EXPECT_EQ(error["param"], c.param) << c.body;
    EXPECT_THAT(error["message"].get<std::string>(), HasSubstr(c.param)) << c.body;
  }
  EXPECT_EQ(ask(post("/tokenize", "[]")).status, 400);
  EXPECT_EQ(ask(post("/detokenize", "{")).status, 400);
}

TEST_F(TokenRoutesTest, ReadsLargeBodiesToo) {
  const Json json = tokenize(fmt::format(R"({{"prompt":"{}"}})", std::string(200'000, 'a')));
  EXPECT_EQ(json["count"], 200'000) << "also beyond the context: it is counting";
}

}  // namespace
}  // namespace nmc::http
