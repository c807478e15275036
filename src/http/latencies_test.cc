#include "http/latencies.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace nmc::http {
namespace {

TEST(Latencies, WithoutSamplesNothingIsAvailable) {
  const Json json = Latencies().json();
  EXPECT_EQ(json["ttft_ms"]["p50"], "not_available");
  EXPECT_EQ(json["ttft_ms"]["samples"], 0);
  EXPECT_EQ(json.size(), 13u);
}

TEST(Latencies, PercentilesAreSamples) {
  Latencies latencies;
  for (int i = 100; i >= 1; --i) latencies.add_token_gap(i);
  const Json itl = latencies.json()["itl_ms"];
  EXPECT_EQ(itl["p50"], 50.0);
  EXPECT_EQ(itl["p95"], 95.0);
  EXPECT_EQ(itl["p99"], 99.0);
  EXPECT_EQ(itl["samples"], 100);
}

TEST(Latencies, OldSamplesLeaveTheWindow) {
  Latencies latencies;
  for (std::size_t i = 0; i < Latencies::kWindow; ++i) latencies.add_token_gap(1000);
  for (std::size_t i = 0; i < Latencies::kWindow; ++i) latencies.add_token_gap(1);
  EXPECT_EQ(latencies.json()["itl_ms"]["p99"], 1.0);
  EXPECT_EQ(latencies.json()["itl_ms"]["samples"], Latencies::kWindow);
  EXPECT_EQ(latencies.json()["itl_ms"]["count"], 2 * Latencies::kWindow);
  EXPECT_EQ(latencies.json()["itl_ms"]["sum"], 1001.0 * Latencies::kWindow);
}

TEST(Latencies, HandOverStagesCountOnlyWhereThereWasOne) {
  Latencies latencies;
  latencies.add_request({.ttft_ms = 5});
  latencies.add_request({.export_ms = 2, .ttft_ms = 7, .transfer_carrier = "shm"});
  EXPECT_EQ(latencies.json()["ttft_ms"]["samples"], 2);
  EXPECT_EQ(latencies.json()["export_ms"]["samples"], 1);
  EXPECT_EQ(latencies.json()["export_ms"]["p50"], 2.0);
}

}  // namespace
}  // namespace nmc::http
