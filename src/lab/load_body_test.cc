#include "lab/load_body.h"

#include <gtest/gtest.h>

namespace nmc::lab {
namespace {

const LoadPrompt kPrompt{.tokens = {1, 2, 3}, .output_tokens = 7};

TEST(LoadBodyTest, ACompletionCarriesTokenIdsOrWords) {
  EXPECT_EQ(format_body(kPrompt, {.model = "m"}),
            R"({"model":"m","prompt":[1,2,3],"max_tokens":7,"temperature":0,"ignore_eos":true,"stream":true,)"
            R"("stream_options":{"include_usage":true}})");
  EXPECT_EQ(format_body(kPrompt, {.model = "m", .text = true, .streamed = false, .ignore_eos = false}),
            R"({"model":"m","prompt":")" + words_of({1, 2, 3}) + R"(","max_tokens":7,"temperature":0})");
}

TEST(LoadBodyTest, AChatIsOneMessageAndANamespaceIsASalt) {
  LoadPrompt prompt = kPrompt;
  prompt.salt = "namespace-1";
  EXPECT_EQ(format_body(prompt, {.model = "m", .chat = true, .streamed = false, .ignore_eos = false}),
            R"({"model":"m","messages":[{"role":"user","content":")" + words_of({1, 2, 3}) +
                R"("}],"max_tokens":7,"temperature":0,"cache_salt":"namespace-1"})");
}

}  // namespace
}  // namespace nmc::lab
