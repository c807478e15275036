#include "lab/completion_answer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nmc::lab {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string event(std::string_view data) { return fmt::format("data: {}\n\n", data); }

std::string text(std::string_view word, std::string_view reason = "null") {
  return event(fmt::format(R"({{"choices":[{{"index":0,"text":"{}","finish_reason":{}}}]}})", word, reason));
}

constexpr std::string_view kUsage =
    R"({"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":3,"prompt_tokens_details":{"cached_tokens":4}}})";

TEST(CompletionAnswerTest, TokensHaveTheTimeOfTheirChunkAndUsageIsRead) {
  CompletionAnswer answer(true);
  ASSERT_TRUE(answer.add(text("a"), Nanos(10)).has_value());
  ASSERT_TRUE(answer.add(text("") + text("c", "\"length\""), Nanos(20)).has_value());
  ASSERT_TRUE(answer.add(event(kUsage) + event("[DONE]"), Nanos(30)).has_value());
  ASSERT_TRUE(answer.end().has_value());
  EXPECT_THAT(answer.token_times(), ElementsAre(Nanos(10), Nanos(20), Nanos(20)));
  EXPECT_EQ(answer.finish_reason(), "length");
  EXPECT_EQ(answer.usage().prompt_tokens, 9u);
  EXPECT_EQ(answer.usage().output_tokens, 3u);
  EXPECT_EQ(answer.usage().cached_tokens, 4u);
}

TEST(CompletionAnswerTest, ChunksThatOnlySayWhoSpeaksOrWhyItEndedAreNoTokens) {
  CompletionAnswer answer(true);
  const auto delta = [](std::string_view members, std::string_view reason = "null") {
    return event(fmt::format(R"({{"choices":[{{"delta":{{{}}},"finish_reason":{}}}]}})", members, reason));
  };
  ASSERT_TRUE(answer.add(delta(R"("role":"assistant","content":"")"), Nanos(1)).has_value());
  ASSERT_TRUE(answer.add(delta(R"("content":"x")"), Nanos(2)).has_value());
  ASSERT_TRUE(answer.add(delta(R"("reasoning_content":"hm")"), Nanos(3)).has_value());
  ASSERT_TRUE(answer.add(delta("", "\"stop\""), Nanos(4)).has_value());
  ASSERT_TRUE(answer.add(event("[DONE]"), Nanos(5)).has_value());
  ASSERT_TRUE(answer.end().has_value());
  EXPECT_THAT(answer.token_times(), ElementsAre(Nanos(2), Nanos(3)));
  CompletionAnswer completion(true);
  ASSERT_TRUE(completion.add(text("x") + text("", "\"stop\""), Nanos(1)).has_value());
  EXPECT_THAT(completion.token_times(), ElementsAre(Nanos(1)));
}

TEST(CompletionAnswerTest, ABrokenStreamSaysWhy) {
  const auto error_of = [](std::string_view body) -> std::string {
    CompletionAnswer answer(true);
    Result<void> result = answer.add(body, Nanos(1));
    if (result) result = answer.end();
    return result ? "none" : result.error().message;
  };
  EXPECT_THAT(error_of(text("a")), HasSubstr("broke off after 1 chunks"));
  EXPECT_THAT(error_of(""), HasSubstr("broke off after 0 chunks"));
  EXPECT_THAT(error_of(event("[DONE]")), HasSubstr("without a token"));
  EXPECT_THAT(error_of(event(R"({"error":{"message":"worker died"}})")), HasSubstr("worker died"));
  EXPECT_THAT(error_of(event("{oops")), HasSubstr("an event of the stream"));
  EXPECT_THAT(error_of(event("{}")), HasSubstr("no choices"));
  EXPECT_THAT(error_of(text("a") + event("[DONE]") + text("b")), HasSubstr("after [DONE]"));
  EXPECT_EQ(error_of(text("a", "\"stop\"")), "none") << "some servers leave [DONE] out";
}

TEST(CompletionAnswerTest, AWholeAnswerHasNoTokenTimes) {
  CompletionAnswer answer(false);
  const std::string document =
      R"({"choices":[{"text":"abc","finish_reason":"stop"}],"usage":{"prompt_tokens":2,"completion_tokens":3}})";
  ASSERT_TRUE(answer.add(document.substr(0, 20), Nanos(1)).has_value());
  ASSERT_TRUE(answer.add(document.substr(20), Nanos(2)).has_value());
  ASSERT_TRUE(answer.end().has_value());
  EXPECT_TRUE(answer.token_times().empty());
  EXPECT_EQ(answer.usage().output_tokens, 3u);
  EXPECT_FALSE(answer.usage().cached_tokens);
  CompletionAnswer wrong(false);
  ASSERT_TRUE(wrong.add("{}", Nanos(1)).has_value());
  EXPECT_THAT(wrong.end().error().message, HasSubstr("no choices"));
}

}  // namespace
}  // namespace nmc::lab
