#include "engine/timeline.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <nlohmann/json.hpp>
#include <set>
#include <thread>

#include "base/failpoint.h"
#include "base/json.h"

namespace nmc::engine {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

StageSpan span(std::string request, std::string stage, std::int64_t start_us, std::int64_t end_us,
               std::string process = "worker-0", bool is_last = false) {
  return {.request_id = std::move(request),
          .stage = std::move(stage),
          .process = std::move(process),
          .pid = 77,
          .start = std::chrono::microseconds(start_us),
          .end = std::chrono::microseconds(end_us),
          .is_last = is_last};
}

class TimelineTest : public ::testing::Test {
 protected:
  void TearDown() override { disarm_failpoints(); }

  Path path() const { return folder_->path() / "sub" / "trace.json"; }
  std::unique_ptr<TimelineWriter> writer() {
    auto made = TimelineWriter::create(path());
    EXPECT_TRUE(made) << made.error().message;
    return std::move(*made);
  }
  static Json parse(const std::string& text) {
    auto json = parse_json(text, "trace");
    EXPECT_TRUE(json) << json.error().message;
    return json ? *json : Json::array();
  }
  Json events() const { return parse(*read_file(path())); }
  static std::vector<Json> of_kind(const Json& events, const char* kind) {
    std::vector<Json> found;
    for (const Json& event : events) {
      if (event["ph"] == kind) found.push_back(event);
    }
    return found;
  }

  Result<TemporaryFolder> folder_ = TemporaryFolder::create();
};

TEST_F(TimelineTest, SpansAreEventsInMicroseconds) {
  auto timeline = writer();
  timeline->add(span("r\"1", "queue", 1'000'000, 1'000'250, "front", true));
  timeline->add(span("r\"1", "prefill", 1'000'250, 1'001'000));
  ASSERT_TRUE(timeline->close());
  const Json all = events();
  const std::vector<Json> spans = of_kind(all, "X");
  ASSERT_EQ(spans.size(), 2u);
  EXPECT_EQ(spans[0]["name"], "queue");
  EXPECT_EQ(spans[0]["ts"], 1'000'000.0);
  EXPECT_EQ(spans[0]["dur"], 250.0);
  EXPECT_EQ(spans[0]["args"]["request"], "r\"1");
  EXPECT_NE(spans[0]["pid"], spans[1]["pid"]);
  std::vector<std::string> groups;
  for (const Json& event : of_kind(all, "M")) {
    if (event["name"] == "process_name") groups.push_back(event["args"]["name"]);
  }
  EXPECT_THAT(groups, ElementsAre("front (pid 77)", "worker-0 (pid 77)"));
  const Json end = of_kind(all, "i").at(0);
  EXPECT_EQ(end["args"]["spans"], 2);
  EXPECT_EQ(end["args"]["dropped"], 0);
}

TEST_F(TimelineTest, WithoutSpansItIsAWholeFileToo) {
  ASSERT_TRUE(writer()->close());
  EXPECT_EQ(events().size(), 1u);
}

TEST_F(TimelineTest, ARequestKeepsItsTrackUntilItsLastSpan) {
  TimelineTracks tracks;
  const auto track = [&](const StageSpan& one) { return tracks.place(one).track; };
  EXPECT_EQ(track(span("a", "prefill", 0, 10)), 1u);
  EXPECT_EQ(track(span("b", "prefill", 12, 20)), 2u);  // after a's span, but a isn't done
  EXPECT_EQ(track(span("a", "decode", 10, 50, "worker-0", true)), 1u);
  EXPECT_EQ(track(span("c", "prefill", 30, 60)), 3u);  // 1 is free, but not at that time
  EXPECT_EQ(track(span("d", "prefill", 55, 70)), 1u);
  EXPECT_EQ(track(span("d", "prefill", 0, 5, "worker-1")), 1u);  // another process is another group
}

// As many as there were at once, however many came; none that cross.
TEST_F(TimelineTest, SpansOfDifferentRequestsNeverCross) {
  constexpr int kAtOnce = 5;
  auto timeline = writer();
  for (int i = 0; i < 500; ++i) {
    const std::string id = std::to_string(i);
    timeline->add(span(id, "prefill", 10 * i, 10 * i + 5));
    if (i < kAtOnce) continue;
    const int old = i - kAtOnce;
    timeline->add(span(std::to_string(old), "decode", 10 * old + 5, 10 * i + 5, "worker-0", true));
  }
  ASSERT_TRUE(timeline->close());
  std::map<int, std::vector<std::pair<double, double>>> by_track;
  for (const Json& event : of_kind(events(), "X")) {
    by_track[event["tid"]].push_back({event["ts"], event["ts"].get<double>() + event["dur"].get<double>()});
  }
  EXPECT_LE(by_track.size(), kAtOnce + 2u);
  for (auto& [track, spans] : by_track) {
    std::ranges::sort(spans);
    for (std::size_t i = 1; i < spans.size(); ++i) EXPECT_LE(spans[i - 1].second, spans[i].first) << track;
  }
}

TEST_F(TimelineTest, ThreadsMayAddAtOnce) {
  auto timeline = writer();
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&timeline, t] {
      for (int i = 0; i < 2000; ++i) timeline->add(span(fmt::format("{}.{}", t, i), "queue", i, i + 1, "front", true));
    });
  }
  for (std::thread& thread : threads) thread.join();
  ASSERT_TRUE(timeline->close());
  std::set<std::string> seen;
  for (const Json& event : of_kind(events(), "X")) seen.insert(event["args"]["request"].get<std::string>());
  EXPECT_EQ(seen.size(), 8000u);
}

// A pipe that nobody reads is a disk that stands still.
TEST_F(TimelineTest, AStandingDiskHoldsNobodyUpAndDropsAreCounted) {
  std::filesystem::create_directories(path().parent_path());
  ASSERT_EQ(::mkfifo(path().c_str(), 0600), 0);
  UniqueFd reader(::open(path().c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  auto timeline = writer();
  const std::size_t added = 3 * TimelineWriter::kQueuedSpansMax;
  for (std::size_t i = 0; i < added; ++i) timeline->add(span("r", "queue", 0, 1));
  std::thread closer([&timeline] { EXPECT_TRUE(timeline->close()); });
  ASSERT_EQ(::fcntl(reader.get(), F_SETFL, 0), 0);
  std::string text(1 << 16, '\0'), all;
  for (ssize_t count; (count = ::read(reader.get(), text.data(), text.size())) > 0;) {
    all.append(text, 0, static_cast<std::size_t>(count));
    if (all.ends_with("\n]\n")) break;
  }
  closer.join();
  const Json json = parse(all);
  const Json end = of_kind(json, "i").at(0);
  EXPECT_EQ(end["args"]["spans"], of_kind(json, "X").size());
  EXPECT_EQ(end["args"]["spans"].get<std::size_t>() + end["args"]["dropped"].get<std::size_t>(), added);
  EXPECT_GE(end["args"]["dropped"].get<std::size_t>(), TimelineWriter::kQueuedSpansMax / 2);
}

TEST_F(TimelineTest, AFailedWriteIsToldAndEndsTheFileOnly) {
  arm_failpoint("timeline.write", FailpointAction::kError);
  auto timeline = writer();
  timeline->add(span("r", "queue", 0, 1));
  const Result<void> first = timeline->close();
  ASSERT_FALSE(first.has_value());
  EXPECT_THAT(first.error().message, HasSubstr("timeline.write"));
  timeline->add(span("r", "queue", 0, 1));
  EXPECT_FALSE(timeline->close().has_value());
}

TEST_F(TimelineTest, APlaceThatCannotBeWrittenIsNamed) {
  const auto made = TimelineWriter::create(folder_->path());
  ASSERT_FALSE(made.has_value());
  EXPECT_THAT(made.error().message, HasSubstr(folder_->path().string()));
}

}  // namespace
}  // namespace nmc::engine
