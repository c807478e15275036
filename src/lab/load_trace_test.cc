#include "lab/load_trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nmc::lab {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr std::string_view kLines =
    "{\"timestamp\": 3000, \"input_length\": 600, \"output_length\": 7, \"hash_ids\": [0, 5]}\n"
    "\n"
    "{\"timestamp\": 1000, \"input_length\": 512, \"output_length\": 0, \"hash_ids\": [0], \"session\": 4}\n"
    "{\"timestamp\": 2000, \"input_length\": 0, \"output_length\": 1, \"hash_ids\": []}";

TEST(LoadTraceTest, TimesCountFromTheFirstRequestAndAreScaled) {
  const auto trace = parse_load_trace(kLines, "x.jsonl", 0.5);
  ASSERT_TRUE(trace.has_value()) << trace.error().message;
  EXPECT_THAT(trace->arrivals(), ElementsAre(std::chrono::seconds(0), std::chrono::seconds(1)));
  EXPECT_THAT(trace->requests[1].block_hashes, ElementsAre(0, 5));
  EXPECT_EQ(trace->requests[0].output_tokens, 1u) << "an answer has at least one token";
}

TEST(LoadTraceTest, AWrongLineIsNamed) {
  const auto error = [](std::string_view line, double time_scale = 1) {
    const auto trace = parse_load_trace(line, "x.jsonl", time_scale);
    return trace ? std::string("none") : trace.error().message;
  };
  EXPECT_THAT(error("{\"timestamp\": 1, \"input_length\": 600, \"output_length\": 7, \"hash_ids\": [0]}"),
              HasSubstr("x.jsonl:1: 1 hash_ids, expected 2"));
  EXPECT_THAT(error("\n{\"timestamp\": 1}"), HasSubstr("x.jsonl:2"));
  EXPECT_THAT(error("{\"timestamp\": -1, \"input_length\": 1, \"output_length\": 7, \"hash_ids\": [0]}"),
              HasSubstr("timestamp"));
  EXPECT_THAT(error("{\"timestamp\": 1e12, \"input_length\": 0, \"output_length\": 7, \"hash_ids\": []}", 2),
              HasSubstr("too far away"));
  EXPECT_THAT(error("nonsense"), HasSubstr("x.jsonl:1"));
  EXPECT_THAT(error(""), HasSubstr("no request"));
}

}  // namespace
}  // namespace nmc::lab
