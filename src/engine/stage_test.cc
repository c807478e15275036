// What RuntimeOptions::on_stage hears: each request's stages, in order, inside the time the request took.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <map>
#include <thread>

#include "base/failpoint.h"
#include "engine/test_support.h"

namespace nmc::engine {
namespace {

using ::testing::ElementsAre;
using testing::Engine;
using testing::random_tokens;

class StageTest : public ::testing::TestWithParam<std::pair<Mode, Transfer>> {
 protected:
  void TearDown() override { disarm_failpoints(); }

  Engine::Setup setup() {
    Engine::Setup setup;
    setup.options.mode = GetParam().first;
    setup.options.transfer = GetParam().second;
    setup.options.on_stage = [this](const StageSpan& span) {
      MutexLock lock(mutex_);
      told_.push_back(span);
    };
    return setup;
  }
  bool is_pd() const { return GetParam().first == Mode::kPd; }
  const char* last_worker() const { return is_pd() ? "decode-0" : "worker-0"; }
  const char* first_worker() const { return is_pd() ? "prefill-0" : "worker-0"; }

  std::vector<StageSpan> told(const std::string& id) {
    MutexLock lock(mutex_);
    std::vector<StageSpan> found;
    for (const StageSpan& span : told_) {
      if (span.request_id == id) found.push_back(span);
    }
    std::ranges::stable_sort(found, {}, &StageSpan::start);
    return found;
  }
  static std::vector<std::string> names(const std::vector<StageSpan>& spans) {
    std::vector<std::string> result;
    for (const StageSpan& span : spans) result.push_back(span.process + "/" + span.stage);
    return result;
  }
  // Each process gives up its track once, with what it told last.
  static void expect_one_last_each(const std::vector<StageSpan>& spans) {
    std::map<std::string, int> lasts;
    for (const StageSpan& span : spans) lasts[span.process] += span.is_last ? 1 : 0;
    for (const auto& [process, count] : lasts) EXPECT_EQ(count, 1) << process;
  }

  Mutex mutex_;
  std::vector<StageSpan> told_ NMC_GUARDED_BY(mutex_);
};

TEST_P(StageTest, EachStageIsToldInsideTheRequestsTime) {
  Engine engine(setup());
  const Nanos before = real_clock().now();
  Outcome outcome;
  engine.run(random_tokens(70, 1, engine.vocab()), 8, &outcome);
  const Nanos after = real_clock().now();
  const std::vector<StageSpan> spans = told("run-0");
  ASSERT_FALSE(spans.empty());
  EXPECT_EQ(spans.front().stage, "queue");
  EXPECT_EQ(spans.front().process, "front");
  std::map<std::string, double> ms;
  for (const StageSpan& span : spans) {
    EXPECT_GE(span.start, before) << span.stage;
    EXPECT_LE(span.end, after) << span.stage;
    EXPECT_LE(span.start, span.end) << span.stage;
    EXPECT_EQ(span.pid, ::getpid());
    ms[span.process + "/" + span.stage] += to_ms(span.end - span.start);
  }
  expect_one_last_each(spans);
  const RequestMetrics& metrics = outcome.metrics;
  const std::string first = first_worker(), last = last_worker();
  EXPECT_NEAR(ms["front/queue"], metrics.queue_ms, 0.01);
  EXPECT_NEAR(ms[first + "/lookup"], metrics.lookup_ms, 0.01);
  EXPECT_NEAR(ms[first + "/prefill"], metrics.prefill_ms, 0.01);
  EXPECT_NEAR(ms[last + "/decode"], metrics.decode_ms, 0.01);
  EXPECT_EQ(ms.contains("prefill-0/export"), is_pd());
  const bool snapshot = is_pd() && GetParam().second != Transfer::kDirect;
  for (const char* name : {"prefill-0/encode", "prefill-0/transport", "decode-0/transport", "decode-0/unpack"})
    EXPECT_EQ(ms.contains(name), snapshot) << name;
  EXPECT_EQ(ms.contains("decode-0/import"), is_pd());
  if (snapshot) {
    EXPECT_NEAR(ms["decode-0/unpack"], metrics.unpack_ms, 0.01);
  }
}

TEST_P(StageTest, StagesOfOneProcessFollowEachOther) {
  Engine engine(setup());
  for (int i = 0; i < 5; ++i) engine.run(random_tokens(40, i % 2, engine.vocab()), 4);
  for (int i = 0; i < 5; ++i) {
    std::map<std::string, Nanos> ends;
    for (const StageSpan& span : told("run-" + std::to_string(i))) {
      if (span.stage == "decode") continue;  // from the first token to the end, so taking the KV over is part of it
      EXPECT_GE(span.start, ends[span.process]) << span.process << "/" << span.stage;
      ends[span.process] = span.end;
    }
  }
}

TEST_P(StageTest, WhatTheCacheKnewIsNotPrefilled) {
  Engine engine(setup());
  engine.run(random_tokens(64, 1, engine.vocab()), 2);
  engine.run(random_tokens(64, 1, engine.vocab()), 2);
  const std::vector<std::string> first = names(told("run-0")), second = names(told("run-1"));
  const std::string prefill = std::string(first_worker()) + "/prefill";
  EXPECT_EQ(std::ranges::count(first, prefill), 1);
  EXPECT_EQ(std::ranges::count(second, prefill), 0);
  EXPECT_EQ(std::ranges::count(second, std::string(first_worker()) + "/restore"), 1);
}

TEST_P(StageTest, WhoNeverGotToAWorkerWaitedInTheQueue) {
  std::atomic<bool> go{false};  // outlives the workers, which look at it
  Engine::Setup one_slot = setup();
  one_slot.options.max_running = 1;
  Engine engine(one_slot);
  auto running = engine.submit(engine.request("running", random_tokens(20, 1, engine.vocab()), 2000));
  running->wait_tokens(1);
  // No step ends before the last of them is cancelled, or a prefill worker could have passed all of them on by then.
  arm_failpoint("worker.step", FailpointAction::kCount, 0, [&] {
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (!go.load() && std::chrono::steady_clock::now() < limit) std::this_thread::yield();
  });
  std::vector<std::shared_ptr<testing::Collector>> waiting;
  for (int i = 0; i < 3; ++i)
    waiting.push_back(
        engine.submit(engine.request("waiting-" + std::to_string(i), random_tokens(20, 2, engine.vocab()), 2000)));
  engine.runtime().cancel("waiting-2");
  go.store(true);
  waiting[2]->wait();
  EXPECT_THAT(names(told("waiting-2")), ElementsAre("front/queue"));
  expect_one_last_each(told("waiting-2"));
  for (const char* id : {"running", "waiting-0", "waiting-1"}) engine.runtime().cancel(id);
  running->wait();
  expect_one_last_each(told("running"));
  EXPECT_EQ(std::ranges::count(names(told("running")), std::string(last_worker()) + "/decode"), 1);
}

class HandoverStageTest : public StageTest {};

TEST_P(HandoverStageTest, OneThatFailsGivesItsTrackUp) {
  Engine engine(setup());
  for (const char* place : {"handover.send", "handover.receive"}) {
    arm_failpoint(place, FailpointAction::kError);
    engine.run(random_tokens(40, 1, engine.vocab()), 4);
    EXPECT_EQ(failpoint_fired(place), 1u);
  }
  for (const char* id : {"run-0", "run-1"}) {
    const std::vector<StageSpan> spans = told(id);
    expect_one_last_each(spans);
    EXPECT_EQ(std::ranges::count(names(spans), "decode-0/import"), 0);
    EXPECT_EQ(std::ranges::count(names(spans), "decode-0/decode"), 1);
  }
}

std::string name_of(const ::testing::TestParamInfo<std::pair<Mode, Transfer>>& each) {
  return std::string(mode_name(each.param.first)) + "_" + transfer_name(each.param.second);
}
constexpr auto kMonolithic = std::pair(Mode::kMonolithic, Transfer::kDirect);
constexpr auto kDirect = std::pair(Mode::kPd, Transfer::kDirect);
constexpr auto kShm = std::pair(Mode::kPd, Transfer::kShm);
constexpr auto kTcp = std::pair(Mode::kPd, Transfer::kTcp);
INSTANTIATE_TEST_SUITE_P(Modes, StageTest, ::testing::Values(kMonolithic, kDirect, kShm, kTcp), name_of);
INSTANTIATE_TEST_SUITE_P(Modes, HandoverStageTest, ::testing::Values(kDirect, kShm, kTcp), name_of);

}  // namespace
}  // namespace nmc::engine
