#include "lab/server_reading.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "net/http_server.h"

namespace nmc::lab {
namespace {

using ::testing::HasSubstr;

Json metrics(int hits, int used, int saved, double count, double sum) {
  return {{"tiers", {{"dram", {{"hits", hits}, {"bytes_used", used}}}}},
          {"counters", {{"saved_tokens", saved}, {"quarantined_entries", "not_available"}}},
          {"latency", {{"prefill_ms", {{"count", count}, {"sum", sum}}}}}};
}

TEST(ServerReadingTest, BetweenTwoReadingsCountersAreDifferencesAndTimesMeans) {
  const Json between = metrics_between(metrics(5, 900, 100, 2, 30), metrics(12, 300, 180, 6, 70));
  EXPECT_EQ(between["tiers"]["dram"], Json({{"hits", 7}})) << "how much is used is no counter";
  EXPECT_EQ(between["counters"], Json({{"saved_tokens", 80}}));
  EXPECT_EQ(between["latency_mean_ms"]["prefill_ms"], 10.0);
}

TEST(ServerReadingTest, CountersThatShrankOrAreNotThereAreNotAvailable) {
  EXPECT_TRUE(metrics_between(metrics(5, 0, 0, 0, 0), metrics(4, 0, 0, 0, 0)).contains("not_available"));
  EXPECT_TRUE(metrics_between(nullptr, metrics(4, 0, 0, 0, 0)).contains("not_available"));
}

TEST(ServerReadingTest, TotalsOfAMasterAreReadByName) {
  const auto counters = parse_counters(
      "# HELP x_total y\nx_total 5\ny_bytes 7\nz_total{a=\"b\"} 9\nmaster_evictions_total 1e3\nbroken_total\n");
  EXPECT_EQ(counters, (std::map<std::string, double>{{"x_total", 5}, {"master_evictions_total", 1000}}));
}

TEST(ServerReadingTest, TheFirstModelIsTakenAndItsAbsenceSaid) {
  std::string body;
  int status = 200;
  auto server = net::HttpServer::start({}, [&](net::HttpRequest, std::shared_ptr<net::HttpExchange> exchange) {
    exchange->respond({.status = status, .body = body});
  });
  ASSERT_TRUE(server.has_value());
  const auto endpoint = *ApiEndpoint::parse((*server)->url());
  body = R"({"data":[{"id":"m"},{"id":"n"}]})";
  EXPECT_EQ(first_model(endpoint, {}).value(), "m");
  for (const char* wrong : {"[]", "{}", R"({"data":[]})", R"({"data":[{}]})", R"({"data":[7]})"}) {
    body = wrong;
    EXPECT_THAT(first_model(endpoint, {}).error().message, HasSubstr("--model")) << wrong;
  }
  status = 401;
  EXPECT_THAT(first_model(endpoint, {}).error().message, HasSubstr("--api-key"));
  EXPECT_EQ(server_version(endpoint, {}), "");
  EXPECT_TRUE(read_metrics(endpoint, {}).is_null());
}

}  // namespace
}  // namespace nmc::lab
