#include "model/generation_defaults.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace nmc::model {
namespace {

using ::testing::HasSubstr;

Result<GenerationDefaults> parse(std::string_view text) {
  const Json json = *parse_json(text, "generation_config.json");
  return parse_generation_defaults(JsonFields(json));
}

TEST(GenerationDefaultsTest, ReadsWhatMakersSuggest) {
  const auto defaults = parse(R"({"do_sample": true, "temperature": 0.6, "top_p": 0.95, "top_k": 20, "min_p": 0.05,
    "repetition_penalty": 1.05, "transformers_version": "4.51.0", "eos_token_id": [1, 2]})");
  ASSERT_TRUE(defaults) << defaults.error().message;
  EXPECT_EQ(*defaults,
            (GenerationDefaults{
                .temperature = 0.6f, .top_p = 0.95f, .top_k = 20, .min_p = 0.05f, .repetition_penalty = 1.05f}));
}

TEST(GenerationDefaultsTest, WhatIsAbsentOrNullIsNoSuggestion) {
  EXPECT_EQ(*parse("{}"), GenerationDefaults());
  EXPECT_EQ(*parse(R"({"temperature": null, "top_k": null})"), GenerationDefaults());
}

TEST(GenerationDefaultsTest, WithoutSamplingItIsGreedy) {
  EXPECT_EQ(parse(R"({"do_sample": false, "temperature": 0.6})")->temperature, 0.0f);
  EXPECT_EQ(parse(R"({"top_k": -1})")->top_k, 0u) << "-1 is how some write all";
}

TEST(GenerationDefaultsTest, RefusesByName) {
  for (const auto& [text, name] : {std::pair(R"({"temperature": -1})", "temperature"),
                                   {R"({"top_p": 0})", "top_p"},
                                   {R"({"top_p": 1.5})", "top_p"},
                                   {R"({"top_k": 1.5})", "top_k"},
                                   {R"({"min_p": "x"})", "min_p"},
                                   {R"({"repetition_penalty": 0})", "repetition_penalty"},
                                   {R"({"do_sample": 1})", "do_sample"}}) {
    const auto defaults = parse(text);
    ASSERT_FALSE(defaults) << text;
    EXPECT_THAT(defaults.error().message, HasSubstr(name));
  }
}

}  // namespace
}  // namespace nmc::model
