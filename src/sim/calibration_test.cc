#include "sim/calibration.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace nmc::sim {
namespace {

using testing::HasSubstr;

Json engine_report(double token_s, double squared_s) {
  Json report = {{"schema", "nano-mooncake/bench-engine/v1"}, {"prefill", Json::array()}, {"decode", Json::array()}};
  for (const double tokens : {128.0, 1024.0, 4096.0}) {
    const double seconds = token_s * tokens + squared_s * tokens * tokens;
    report["prefill"].push_back({{"batch", 1}, {"prompt_tokens", tokens}, {"prefill_tokens_per_s", tokens / seconds}});
    report["prefill"].push_back({{"batch", 8}, {"prompt_tokens", tokens}, {"prefill_tokens_per_s", 1.0}});
  }
  report["decode"].push_back({{"batch", 1}, {"decode_tokens_per_s", 30.0}});
  report["decode"].push_back({{"batch", 8}, {"decode_tokens_per_s", 160.0}});
  return report;
}

TEST(CalibrationTest, PrefillIsTheCurveThroughTheSmallestBatch) {
  Calibration found;
  ASSERT_TRUE(calibrate(engine_report(2e-4, 3e-8), "r", found));
  EXPECT_EQ(found.prefill->fixed_s, 0);
  EXPECT_NEAR(found.prefill->token_s, 2e-4, 1e-12);
  EXPECT_NEAR(found.prefill->token_squared_s, 3e-8, 1e-15);
  EXPECT_EQ(found.decode_slots, 8u);
  EXPECT_DOUBLE_EQ(*found.decode_token_s, 0.05);
  EXPECT_FALSE(found.lookup_s);
}

TEST(CalibrationTest, NoCostBelowNothing) {
  Calibration found;
  ASSERT_TRUE(calibrate(engine_report(2e-4, -1e-8), "r", found));  // long prompts were faster a token
  EXPECT_EQ(found.prefill->token_squared_s, 0);
  EXPECT_NEAR(found.prefill->token_s, 1.8e-4, 3e-5);
}

TEST(CalibrationTest, TheNetworkIsTheLineThroughTheReads) {
  Json report = {{"schema", "nano-mooncake/store-bench/v1"}, {"rows", Json::array()}};
  for (const double bytes : {4096.0, 65536.0, 16777216.0}) {
    for (const char* carrier : {"shm", "tcp"}) {
      const double us = std::string_view(carrier) == "tcp" ? 20 + bytes / 2000 : 1 + bytes / 9000;
      report["rows"].push_back(
          {{"op", "get_into"}, {"carrier", carrier}, {"bytes", bytes}, {"threads", 1}, {"p50_us", us}});
    }
  }
  report["rows"].push_back({{"op", "exists"}, {"carrier", "tcp"}, {"bytes", 1}, {"threads", 1}, {"p50_us", 15}});
  Calibration found;
  ASSERT_TRUE(calibrate(report, "r", found));
  EXPECT_NEAR(*found.network_bytes_per_s, 2e9, 1);
  EXPECT_DOUBLE_EQ(*found.lookup_s, 15e-6);
}

TEST(CalibrationTest, AnythingElseIsRefusedByName) {
  Calibration found;
  for (const char* text : {"{}", "[]", "1", R"({"schema": "nano-mooncake/bench-engine/v1"})",
                           R"({"schema": "nano-mooncake/bench-engine/v1", "prefill": [1], "decode": {}})",
                           R"({"schema": "nano-mooncake/store-bench/v1", "rows": [{"op": 1}]})"}) {
    const Result<void> done = calibrate(Json::parse(text), "r.json", found);
    ASSERT_FALSE(done) << text;
    EXPECT_THAT(done.error().message, HasSubstr("r.json: expected ")) << text;
  }
}

}  // namespace
}  // namespace nmc::sim
