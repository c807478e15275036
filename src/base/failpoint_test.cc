#include "base/failpoint.h"

#include <gmock/gmock.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <thread>

#include "base/check.h"
#include "base/clock.h"

namespace nmc {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class Failpoints : public testing::Test {
 protected:
  void SetUp() override {
#if defined(NMC_FAILPOINTS_OFF)
    GTEST_SKIP() << "failpoints are compiled out";
#endif
    disarm_failpoints();
  }
  void TearDown() override {
    disarm_failpoints();
    ::unsetenv("NANO_MOONCAKE_FAILPOINTS");
  }

  static Result<void> arm(const char* text) {
    ::setenv("NANO_MOONCAKE_FAILPOINTS", text, 1);
    return arm_failpoints_from_environment();
  }
  static int hits_of(std::string_view name, int passes) {
    int hits = 0;
    for (int i = 0; i < passes; ++i) hits += failpoint(name).has_value();
    return hits;
  }
};

TEST_F(Failpoints, AreInertUnlessArmed) {
  EXPECT_EQ(hits_of("disk.append", 3), 0);
  EXPECT_EQ(failpoint_fired("disk.append"), 0u);
  EXPECT_TRUE(failpoint_statuses().empty());
}

TEST_F(Failpoints, GiveAnErrorThatNamesThem) {
  arm_failpoint("disk.append", FailpointAction::kError);
  const auto hit = failpoint("disk.append");
  ASSERT_TRUE(hit);
  EXPECT_EQ(hit->code, ErrorCode::kUnavailable);
  EXPECT_EQ(hit->message, "injected at disk.append");
}

TEST_F(Failpoints, TakeLongerWhereADelayIsArmed) {
  ASSERT_TRUE(arm("a=delay:30*2"));
  const Stopwatch watch;
  EXPECT_EQ(hits_of("a", 5), 0);
  EXPECT_GE(watch.elapsed(), std::chrono::milliseconds(60));
  EXPECT_EQ(failpoint_fired("a"), 2u);
  EXPECT_FALSE(arm("a=delay:60001"));
  EXPECT_FALSE(arm("a=delay:x"));
}

TEST_F(Failpoints, ActSoManyTimesAndCountOnlyThose) {
  arm_failpoint("a", FailpointAction::kError, 3);
  EXPECT_EQ(hits_of("a", 10), 3);
  EXPECT_EQ(failpoint_fired("a"), 3u);
}

TEST_F(Failpoints, ZeroTimesIsForEver) {
  arm_failpoint("a", FailpointAction::kError, 0);
  EXPECT_EQ(hits_of("a", 1000), 1000);
}

TEST_F(Failpoints, OthersPassWhileOneIsArmed) {
  arm_failpoint("a", FailpointAction::kError, 0);
  EXPECT_EQ(hits_of("ab", 2), 0);
  EXPECT_EQ(failpoint_fired("ab"), 0u);
}

TEST_F(Failpoints, CountOnlyCounts) {
  arm_failpoint("a", FailpointAction::kCount, 0);
  EXPECT_EQ(hits_of("a", 5), 0);
  EXPECT_EQ(failpoint_fired("a"), 5u);
}

TEST_F(Failpoints, CallbackRunsFirstAndMayUseFailpoints) {
  arm_failpoint("outer", FailpointAction::kError, 1, [] { arm_failpoint("inner", FailpointAction::kError); });
  EXPECT_TRUE(failpoint("outer"));
  EXPECT_TRUE(failpoint("inner"));
}

TEST_F(Failpoints, DisarmForgetsAll) {
  arm_failpoint("a", FailpointAction::kError, 0);
  disarm_failpoints();
  EXPECT_FALSE(failpoint("a"));
  EXPECT_EQ(failpoint_fired("a"), 0u);
}

TEST_F(Failpoints, CountIsExactOverThreads) {
  arm_failpoint("a", FailpointAction::kError, 500);
  std::atomic<int> hits = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) threads.emplace_back([&] { hits += hits_of("a", 400); });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(hits, 500);
  EXPECT_EQ(failpoint_fired("a"), 500u);
}

TEST_F(Failpoints, EnvironmentArmsSeveral) {
  ASSERT_TRUE(arm("disk.append=error*2,handover.decode=count*0,x=error"));
  EXPECT_EQ(hits_of("disk.append", 5), 2);
  EXPECT_EQ(hits_of("handover.decode", 5), 0);
  EXPECT_EQ(hits_of("x", 5), 1);
  std::vector<std::string> names;
  for (const FailpointStatus& status : failpoint_statuses()) names.push_back(status.name);
  EXPECT_THAT(names, ElementsAre("disk.append", "handover.decode", "x"));
  EXPECT_EQ(failpoint_fired("handover.decode"), 5u);
}

TEST_F(Failpoints, SkippedPassesComeBeforeThoseThatAct) {
  ASSERT_TRUE(arm("a=error*2@3,b=error@1"));
  EXPECT_EQ(hits_of("a", 3), 0);
  EXPECT_EQ(failpoint_fired("a"), 0u);
  EXPECT_EQ(hits_of("a", 5), 2);
  EXPECT_EQ(hits_of("b", 5), 1);
}

TEST_F(Failpoints, UnsetAndEmptyEnvironmentArmNothing) {
  ::unsetenv("NANO_MOONCAKE_FAILPOINTS");
  EXPECT_TRUE(arm_failpoints_from_environment());
  EXPECT_TRUE(arm(""));
  EXPECT_TRUE(failpoint_statuses().empty());
}

TEST_F(Failpoints, MalformedEntriesAreNamed) {
  for (const char* text :
       {"a", "a=", "=error", "a=explode", "a=error*", "a=error*x", "a=error*-1", "a=error*3x",
        "a=error*99999999999999999999", "a=error@", "a=error@x", "a=error@1*2", ",", "ok=count,b=oops"}) {
    const Result<void> armed = arm(text);
    ASSERT_FALSE(armed) << text;
    EXPECT_EQ(armed.error().code, ErrorCode::kInvalidArgument);
    EXPECT_THAT(armed.error().message, HasSubstr("NANO_MOONCAKE_FAILPOINTS"));
  }
  EXPECT_THAT(arm("ok=count,b=oops").error().message, HasSubstr("\"b=oops\""));
}

TEST_F(Failpoints, ExitEndsTheProcessAtOnce) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(
      {
        arm_failpoint("a", FailpointAction::kExit);
        (void)failpoint("a");
      },
      testing::ExitedWithCode(137), "");
}

TEST_F(Failpoints, StopHoldsTheProcessUntilItIsContinued) {
  const ::pid_t child = ::fork();
  if (child == 0) {
    arm_failpoint("a", FailpointAction::kStop);
    (void)failpoint("a");
    ::_exit(7);
  }
  ASSERT_GT(child, 0);
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, WUNTRACED), child);
  EXPECT_TRUE(WIFSTOPPED(status));
  ASSERT_EQ(::kill(child, SIGCONT), 0);
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 7);
}

TEST(ChecksDeathTest, SayWhatFailedWithItsValues) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  const int rows = -1;
  EXPECT_DEATH(NMC_REQUIRE(rows > 0, "rows={}", rows), "requirement failed: rows > 0: rows=-1");
  EXPECT_DEATH(NMC_ASSERT(rows > 0), "assertion failed: rows > 0");
}

}  // namespace
}  // namespace nmc
