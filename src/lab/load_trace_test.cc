#include "lab/load_trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sim/trace_reader.h"

namespace nmc::lab {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Result<LoadTrace> parsed(std::string_view lines, double time_scale) {
  const auto trace = sim::parse_trace(lines, "x.jsonl", {.sort = true});
  EXPECT_TRUE(trace) << trace.error().message;
  return load_trace_of(*trace, time_scale);
}

TEST(LoadTraceTest, TimesCountFromTheFirstRequestAndAreScaled) {
  const auto trace = parsed(
      "{\"timestamp\": 3000, \"input_length\": 600, \"output_length\": 7, \"hash_ids\": [0, 5]}\n"
      "{\"timestamp\": 1000, \"input_length\": 512, \"output_length\": 0, \"hash_ids\": [0], \"session\": 4}\n",
      0.5);
  ASSERT_TRUE(trace.has_value()) << trace.error().message;
  EXPECT_THAT(trace->arrivals(), ElementsAre(std::chrono::seconds(0), std::chrono::seconds(1)));
  EXPECT_THAT(trace->requests[1].block_hashes, ElementsAre(0, 5));
  EXPECT_EQ(trace->requests[0].output_tokens, 1u) << "an answer has at least one token";
}

TEST(LoadTraceTest, WhatIsTooFarAwayIsNamedByItsLine) {
  const std::string first = "{\"timestamp\": 0, \"input_length\": 1, \"output_length\": 7, \"hash_ids\": [0]}\n";
  const auto far =
      parsed(first + "{\"timestamp\": 1e11, \"input_length\": 1, \"output_length\": 7, \"hash_ids\": [0]}", 1e6);
  ASSERT_FALSE(far);
  EXPECT_THAT(far.error().message, HasSubstr("x.jsonl:2"));
}

}  // namespace
}  // namespace nmc::lab
