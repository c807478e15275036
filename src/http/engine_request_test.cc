#include "http/engine_request.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "model/byte_tokenizer.h"

namespace nmc::http {
namespace {

using model::ByteTokenizer;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Ids = std::vector<engine::TokenId>;

class EngineRequestTest : public ::testing::Test {
 protected:
  EngineRequestTest() {
    model_.tokenizer = std::make_unique<ByteTokenizer>();
    model_.chat_template = model::make_byte_chat_template();
    model_.config.vocab = ByteTokenizer::kVocabSize;
  }
  ApiResult<std::vector<engine::GenerateRequest>> make(std::string_view body,
                                                       Endpoint endpoint = Endpoint::kCompletions) {
    auto request = parse_completion_request(body, endpoint, {.models = {"m", "m-adapted"}, .defaults = {}});
    EXPECT_TRUE(request) << request.error().message;
    return make_engine_requests(*request, "id", model_, {.context = 32, .deadline = Nanos(77)}, 5);
  }

  model::Model model_;
};

TEST_F(EngineRequestTest, PromptsBecomeOneRequestEach) {
  const auto made =
      make(R"({"prompt":["ab","c"],"temperature":0.5,"top_k":3,"seed":9,"cache_salt":"s","ignore_eos":true})");
  ASSERT_TRUE(made);
  ASSERT_EQ(made->size(), 2u);
  EXPECT_THAT((*made)[0].prompt, ElementsAre('a', 'b'));
  EXPECT_THAT((*made)[1].prompt, ElementsAre('c'));
  EXPECT_EQ((*made)[0].id, "id-0");
  EXPECT_EQ((*made)[1].id, "id-1");
  for (const engine::GenerateRequest& one : *made) {
    EXPECT_EQ(one.max_tokens, kDefaultMaxTokens);
    EXPECT_EQ(one.sampling.temperature, 0.5f);
    EXPECT_EQ(one.sampling.top_k, 3u);
    EXPECT_EQ(one.sampling.seed, 9u);
    EXPECT_EQ(one.cache_salt, "s");
    EXPECT_EQ(one.deadline, Nanos(77));
    EXPECT_TRUE(one.ignore_eos);
  }
}

TEST_F(EngineRequestTest, WithoutASeedPromptsDrawDifferently) {
  const auto made = make(R"({"prompt":["a","a"]})");
  EXPECT_NE((*made)[0].sampling.seed, (*made)[1].sampling.seed);
}

TEST_F(EngineRequestTest, AnswersToOnePromptStandTogetherAndDrawDifferently) {
  const auto made = make(R"({"prompt":["a","b"],"n":3,"seed":9,"min_tokens":2,"stop_token_ids":[65],"logprobs":1})");
  ASSERT_TRUE(made);
  ASSERT_EQ(made->size(), 6u);
  std::set<std::uint64_t> seeds;
  for (std::size_t i = 0; i < 6; ++i) {
    const engine::GenerateRequest& one = (*made)[i];
    EXPECT_EQ(one.id, fmt::format("id-{}", i));
    EXPECT_THAT(one.prompt, ElementsAre(i < 3 ? 'a' : 'b'));
    EXPECT_EQ(one.min_tokens, 2u);
    EXPECT_THAT(one.stop_ids, ElementsAre(65));
    EXPECT_EQ(one.logprobs, 1u);
    seeds.insert(one.sampling.seed);
    EXPECT_EQ(one.sampling.seed, (*made)[i % 3].sampling.seed)
        << "a prompt's answers don't depend on what stands beside";
  }
  EXPECT_EQ(seeds.size(), 3u);
  EXPECT_EQ((*made)[0].sampling.seed, 9u);
}

TEST_F(EngineRequestTest, IdsOutsideTheVocabularyAreRefusedByField) {
  for (const auto& [field, value] : {std::pair("logit_bias", R"({"100000":1})"), {"stop_token_ids", "[100000]"}}) {
    const auto made = make(fmt::format(R"({{"prompt":"a","{}":{}}})", field, value));
    ASSERT_FALSE(made);
    EXPECT_EQ(made.error().status, 400);
    EXPECT_EQ(made.error().param, field);
    EXPECT_THAT(made.error().message, HasSubstr("100000"));
  }
}

TEST_F(EngineRequestTest, MaxTokensIsCutToTheContext) {
  EXPECT_EQ((*make(R"({"prompt":"abcd","max_tokens":1000000000})"))[0].max_tokens, 28u);
  EXPECT_EQ((*make(R"({"prompt":"abcd","max_tokens":28})"))[0].max_tokens, 28u);
  EXPECT_EQ((*make(R"({"prompt":"abcd","max_tokens":27})"))[0].max_tokens, 27u);
  EXPECT_EQ((*make(R"({"prompt":"abcdefghijklmnopqrst"})"))[0].max_tokens, 12u);  // the default as well
}

TEST_F(EngineRequestTest, AChatGoesOnToTheEndOfTheContext) {
  const auto made = make(R"({"messages":[{"role":"user","content":"ab"}]})", Endpoint::kChat);
  ASSERT_TRUE(made);
  EXPECT_THAT((*made)[0].prompt, ElementsAre(ByteTokenizer::kBos, ByteTokenizer::kUser, 'a', 'b', ByteTokenizer::kEnd,
                                             ByteTokenizer::kAssistant));
  EXPECT_EQ((*made)[0].max_tokens, 26u);
}

TEST_F(EngineRequestTest, TooLongPromptsNameBothLengths) {
  EXPECT_TRUE(make(fmt::format(R"({{"prompt":"{}"}})", std::string(31, 'a'))));
  const auto made = make(fmt::format(R"({{"prompt":"{}"}})", std::string(32, 'a')));
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().status, 400);
  EXPECT_EQ(made.error().param, "prompt");
  EXPECT_THAT(made.error().message, AllOf(HasSubstr("has 32 tokens"), HasSubstr("context holds 32")));
  const auto chat =
      make(fmt::format(R"({{"messages":[{{"role":"user","content":"{}"}}]}})", std::string(40, 'a')), Endpoint::kChat);
  ASSERT_FALSE(chat);
  EXPECT_EQ(chat.error().param, "messages");
}

TEST_F(EngineRequestTest, RefusesEmptyPromptsAndUnknownIds) {
  const auto empty = make(R"({"prompt":["a",""]})");
  ASSERT_FALSE(empty);
  EXPECT_EQ(empty.error().status, 400);
  const auto unknown = make(R"({"prompt":[1,263]})");
  ASSERT_FALSE(unknown);
  EXPECT_THAT(unknown.error().message, HasSubstr("token id 263 is not in the vocabulary of 263"));
}

TEST_F(EngineRequestTest, WhatTheTemplateRefusesIsNamed) {
  const auto tools =
      make(R"({"messages":[{"role":"user","content":"a"}],"tools":[{"type":"function"}]})", Endpoint::kChat);
  ASSERT_FALSE(tools);
  EXPECT_EQ(tools.error().status, 400);
  EXPECT_EQ(tools.error().param, "tools");
  model_.chat_template = model::make_chat_template("{{ raise_exception('roles must alternate') }}", "x", "", "");
  const auto raised = make(R"({"messages":[{"role":"user","content":"a"}]})", Endpoint::kChat);
  ASSERT_FALSE(raised);
  EXPECT_EQ(raised.error().status, 400);
  EXPECT_EQ(raised.error().param, "messages");
  EXPECT_EQ(raised.error().message, "roles must alternate");
}

// A template this build can't render leaves plain completions alone.
TEST_F(EngineRequestTest, TemplatesThatAreNotUnderstoodAreNamed) {
  class Unknown final : public model::ChatTemplate {
    Result<Ids> render(const model::Tokenizer&, const model::Chat&, const Clock&) const override {
      return unsupported("chat_template of /x/tokenizer_config.json is not understood");
    }
  };
  model_.chat_template = std::make_unique<Unknown>();
  const auto made = make(R"({"messages":[{"role":"user","content":"ab"}]})", Endpoint::kChat);
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().status, 400);
  EXPECT_THAT(made.error().message, HasSubstr("tokenizer_config.json"));
  EXPECT_TRUE(make(R"({"prompt":"a"})"));
}

TEST_F(EngineRequestTest, LongPromptsAreCutWhereThatIsAskedFor) {
  EXPECT_THAT((*make(R"({"prompt":"abcdef","truncate_prompt_tokens":2})"))[0].prompt, ElementsAre('e', 'f'));
  EXPECT_EQ((*make(R"({"prompt":"abc","truncate_prompt_tokens":9})"))[0].prompt.size(), 3u);
  const std::string prompt(100, 'x');
  const auto fitted = [&](std::string_view fields, Endpoint endpoint) {
    const std::string body =
        endpoint == Endpoint::kChat
            ? fmt::format(R"({{"messages":[{{"role":"user","content":"{}"}}],"truncate_prompt_tokens":-1{}}})", prompt,
                          fields)
            : fmt::format(R"({{"prompt":"{}","truncate_prompt_tokens":-1{}}})", prompt, fields);
    const auto made = make(body, endpoint);
    EXPECT_TRUE(made);
    return std::pair((*made)[0].prompt.size(), (*made)[0].max_tokens);
  };
  EXPECT_EQ(fitted("", Endpoint::kCompletions), std::pair(std::size_t{16}, kDefaultMaxTokens));
  EXPECT_EQ(fitted(R"(,"max_tokens":5)", Endpoint::kCompletions), std::pair(std::size_t{27}, std::size_t{5}));
  EXPECT_EQ(fitted(R"(,"max_tokens":500)", Endpoint::kCompletions), std::pair(std::size_t{1}, std::size_t{31}));
  EXPECT_EQ(fitted("", Endpoint::kChat), std::pair(std::size_t{31}, std::size_t{1}));
  EXPECT_FALSE(make(fmt::format(R"({{"prompt":"{}","truncate_prompt_tokens":40}})", prompt)));
}

TEST_F(EngineRequestTest, BadWordsBecomeTokensAtATextsStartAndAfterASpace) {
  const auto made = make(R"({"prompt":"a","bad_words":["no","  x"," "]})");
  ASSERT_TRUE(made);
  // Bytes: after a space a word is longer here, and that spelling begins as the text does.
  EXPECT_THAT((*made)[0].sampling.bad_sequences, ElementsAre(Ids{'n', 'o'}, Ids{'x'}, Ids{' '}));
}

TEST_F(EngineRequestTest, AllowedIdsAreOfTheVocabulary) {
  EXPECT_THAT((*make(R"({"prompt":"a","allowed_token_ids":[1,2]})"))[0].sampling.allowed_ids, ElementsAre(1, 2));
  const auto made = make(R"({"prompt":"a","allowed_token_ids":[100000]})");
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().param, "allowed_token_ids");
}

}  // namespace
}  // namespace nmc::http
