#include "cli/top_view.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace nmc::cli {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(Samples, AreReadByNameAndLabel) {
  const Samples samples = parse_samples(
      "# HELP a what\n# TYPE a counter\na 3\nb 1.5e+09\nc{segment=\"x y\"} 7\nc{segment=\"z\"} 8\n"
      "two{a=\"1\",b=\"2\"} 9\nbroken\nno number\nd +Inf\nlast 4");
  EXPECT_EQ(samples.find("a"), 3.0);
  EXPECT_EQ(samples.find("b"), 1.5e9);
  EXPECT_EQ(samples.find("last"), 4.0);
  EXPECT_EQ(samples.find("c"), std::nullopt);
  const auto& c = samples.named.at("c");
  ASSERT_EQ(c.size(), 2u);
  EXPECT_EQ(c[0], std::pair(std::string("x y"), 7.0));
  EXPECT_FALSE(samples.named.contains("two"));
  EXPECT_EQ(samples.find("broken"), std::nullopt);
}

TopReading server_reading(std::uint64_t requests, double ttft_sum, std::uint64_t output, int at_s) {
  Json json;
  json["schema"] = "nano-mooncake/metrics/v1";
  json["model"] = "moon";
  json["mode"] = "pd";
  json["reuse"] = "global";
  json["transfer"] = "shm";
  json["queue"] = Json::object({{"queued", 2}, {"running", 3}, {"max_queue", 256}, {"max_running", 64}});
  json["requests"] =
      Json::object({{"received", requests}, {"finished", 1}, {"cancelled", 0}, {"failed", 0}, {"rejected", 0}});
  json["pool"] = Json::object({{"blocks_total", 1000},
                               {"blocks_free", 800},
                               {"blocks_reserved", 1},
                               {"blocks_pinned", 9},
                               {"blocks_cached", 199}});
  json["tiers"]["dram"] = Json::object({{"lookups", 200}, {"hits", 150}});
  json["tiers"]["disk"] = Json::object({{"hits", 25}});
  json["latency"]["ttft_ms"] =
      Json::object({{"p50", 12.5}, {"p95", "not_available"}, {"count", requests}, {"sum", ttft_sum}});
  json["workers"] = Json::array({Json::object({{"name", "prefill-0"},
                                               {"role", "prefill"},
                                               {"pid", 7},
                                               {"state", "lost"},
                                               {"restarts", 4},
                                               {"queued", 0},
                                               {"running", 1},
                                               {"utilization", 0.25}})});
  json["counters"] = Json::object(
      {{"prompt_tokens", 1000}, {"saved_tokens", 900}, {"computed_tokens", 100}, {"output_tokens", output}});
  json["handovers"] = Json::array();
  for (int i = 0; i < 32; ++i) {
    json["handovers"].push_back(Json::object({{"request", "r-" + std::to_string(i)},
                                              {"from", "prefill-0"},
                                              {"to", "decode-0"},
                                              {"transfer", "shm"},
                                              {"bytes", 2048},
                                              {"ms", 0.5}}));
  }
  return {.document = std::move(json), .at = std::chrono::seconds(at_s)};
}

std::string text_of(const TopView& view, std::size_t columns = 200, std::size_t rows = 100) {
  return render_lines(view.lines(columns, rows), columns, false);
}

TEST(ServerView, ShowsWhatWasRead) {
  const auto view = make_top_view(server_reading(10, 100, 500, 1));
  const std::string text = text_of(*view);
  for (const char* shown : {"model moon", "hand-over shm", "3 running of 64", "2 queued, room for 256", "1,000 blocks",
                            "pinned 9", "reserved 1", "cached 190", "free 800", "memory 75.0 %", "disk 12.5 %",
                            "nowhere 12.5 %", "900, 90.0 %", "500 in all", "r-0", "r-31", "2 KiB"}) {
    EXPECT_THAT(text, HasSubstr(shown));
  }
  EXPECT_THAT(text, ContainsRegex("prefill-0 +prefill +lost +0 +1 +4 +7 +25.0 %"));
  EXPECT_THAT(text, ContainsRegex("first token, ms +- +12.5 +- +-"));  // of one reading nothing is known of now
}

TEST(ServerView, NowIsWhatHappenedSinceTheReadingBefore) {
  const auto view = make_top_view(server_reading(10, 100, 500, 1));
  view->add(server_reading(14, 180, 1100, 3));
  const std::string text = text_of(*view);
  EXPECT_THAT(text, ContainsRegex("first token, ms +20.0 "));  // 80 ms of 4 requests
  EXPECT_THAT(text, ContainsRegex("output tokens/s +300 "));   // 600 in 2 s
  view->add(server_reading(14, 180, 1100, 4));
  EXPECT_THAT(text_of(*view), ContainsRegex("first token, ms +- "));
}

TEST(ServerView, AServerStartedAnewTellsNothingOfTheTimeBetween) {
  const auto view = make_top_view(server_reading(10, 100, 500, 1));
  view->add(server_reading(2, 8, 20, 2));
  EXPECT_THAT(text_of(*view), ContainsRegex("output tokens/s +- "));
}

TEST(ServerView, KeepsToTheRowsThereAre) {
  const auto view = make_top_view(server_reading(10, 100, 500, 1));
  EXPECT_LE(view->lines(80, 24).size(), 24u);
  EXPECT_GT(view->lines(80, 60).size(), 45u);
}

TEST(ServerView, WhatAServerCannotTellIsLeftOut) {
  TopReading reading = server_reading(1, 1, 1, 1);
  reading.document["pool"] = "not_available";
  reading.document["tiers"] = "not_available";
  reading.document.erase("handovers");
  reading.document["workers"] = Json::array({Json("odd")});
  const std::string text = text_of(*make_top_view(std::move(reading)));
  EXPECT_THAT(text, Not(HasSubstr("block pool")));
  EXPECT_THAT(text, HasSubstr("3 running of 64"));
}

TopReading store_reading(int lookups, int at_s) {
  TopReading reading{.kind = TopReading::Kind::kStore, .at = std::chrono::seconds(at_s)};
  reading.samples = parse_samples(
      fmt::format("master_total_capacity_bytes 4294967296\nmaster_allocated_bytes 1073741824\nmaster_key_count 1234\n"
                  "nano_mooncake_lookups_total {}\nmem_cache_hit_nums_ 50\nmaster_active_clients 2\n"
                  "segment_total_capacity_bytes{{segment=\"host-a\"}} 4294967296\n"
                  "segment_allocated_bytes{{segment=\"host-a\"}} 1073741824\n",
                  lookups));
  return reading;
}

TEST(StoreView, ShowsAStore) {
  const auto view = make_top_view(store_reading(100, 1));
  view->add(store_reading(600, 2));
  const std::string text = text_of(*view);
  EXPECT_THAT(text, HasSubstr("1 GiB of 4 GiB   25.0 %"));
  EXPECT_THAT(text, ContainsRegex("objects +1,234"));
  EXPECT_THAT(text, ContainsRegex("lookups +500 +600"));
  EXPECT_THAT(text, HasSubstr("8.3 % found"));
  EXPECT_THAT(text, ContainsRegex("host-a .* 1 GiB of 4 GiB"));
  EXPECT_THAT(text, Not(HasSubstr("disk")));
  const Json figures = view->figures();
  EXPECT_EQ(figures["keys"], 1234);
  EXPECT_EQ(figures["segments"][0]["used_bytes"], 1073741824);
  EXPECT_FALSE(figures.contains("disk_bytes"));
}

}  // namespace
}  // namespace nmc::cli
