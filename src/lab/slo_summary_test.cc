#include "lab/slo_summary.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nmc::lab {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// An answer of `tokens` tokens, the first one after `ttft`, the others `gap` apart.
LoadRecord answered(Nanos planned, Nanos ttft, std::size_t tokens, Nanos gap) {
  LoadRecord record{.planned = planned, .sent = planned, .outcome = LoadOutcome::kOk, .status = 200};
  for (std::size_t i = 0; i < tokens; ++i)
    record.token_times.push_back(planned + ttft + gap * static_cast<std::int64_t>(i));
  record.ended = record.token_times.back();
  record.usage = {.prompt_tokens = 10, .output_tokens = tokens, .cached_tokens = 4};
  return record;
}

LoadRecord failed(Nanos planned, LoadOutcome outcome) {
  return {
      .planned = planned, .sent = planned, .ended = planned, .outcome = outcome, .reason = load_outcome_name(outcome)};
}

const SummaryOptions kTwoSeconds{.warmup = seconds(1), .duration = seconds(2)};

TEST(SloSummaryTest, OutcomesAreCountedApartAndTheWarmUpIsNot) {
  LoopRun run;
  run.records = {answered(milliseconds(500), milliseconds(900), 1, Nanos(0)),
                 answered(milliseconds(1000), milliseconds(10), 3, milliseconds(5)),
                 failed(seconds(2), LoadOutcome::kRejected),
                 failed(seconds(2), LoadOutcome::kTimeout),
                 failed(seconds(2), LoadOutcome::kError),
                 failed(seconds(2), LoadOutcome::kRejected)};
  const RunSummary summary = summarize(run, kTwoSeconds);
  EXPECT_EQ(summary.requests, 5u);
  EXPECT_EQ(summary.ok, 1u);
  EXPECT_EQ(summary.rejected, 2u);
  EXPECT_EQ(summary.timeouts, 1u);
  EXPECT_EQ(summary.errors, 1u);
  EXPECT_EQ(summary.reasons[0].first, "rejected");
  EXPECT_EQ(summary.offered_per_s, 2.5);
  EXPECT_EQ(summary.ttft_ms.samples, 1u);
  EXPECT_EQ(summary.ttft_ms.mean, 10);
  EXPECT_EQ(summary.itl_ms.samples, 2u);
  EXPECT_EQ(summary.itl_ms.mean, 5);
  EXPECT_EQ(summary.e2e_ms.mean, 20);
  EXPECT_EQ(summary.input_tokens, 10u);
  EXPECT_EQ(summary.cached_tokens, 4u);
  EXPECT_THAT(summary.invalid, IsEmpty());
}

TEST(SloSummaryTest, GoodputCountsThoseWithinEveryLimitOverTheMeasuredTime) {
  LoopRun run;
  run.records = {answered(seconds(1), milliseconds(10), 3, milliseconds(5)),
                 answered(seconds(1), milliseconds(200), 3, milliseconds(5)),
                 answered(seconds(1), milliseconds(10), 3, milliseconds(50)), failed(seconds(1), LoadOutcome::kError)};
  SummaryOptions options = kTwoSeconds;
  EXPECT_EQ(summarize(run, options).good, 3u) << "without limits each answer is good";
  options.limits.ttft_ms = 100;
  EXPECT_EQ(summarize(run, options).good, 2u);
  options.limits.itl_ms = 10;
  EXPECT_EQ(summarize(run, options).good, 1u);
  EXPECT_EQ(summarize(run, options).goodput_per_s, 0.5);
  EXPECT_EQ(summarize(run, options).good_part, 0.25);
  options.limits.e2e_ms = 19;
  EXPECT_EQ(summarize(run, options).good, 0u);
}

TEST(SloSummaryTest, RatesOfAnswersCountUntilTheLastOne) {
  LoopRun run;
  run.records = {answered(seconds(1), seconds(1), 1, Nanos(0)), answered(seconds(2), seconds(3), 1, Nanos(0))};
  const RunSummary summary = summarize(run, kTwoSeconds);
  EXPECT_EQ(summary.offered_per_s, 1);
  EXPECT_EQ(summary.ok_per_s, 0.5) << "two answers within the four seconds from 1 to 5";
  EXPECT_EQ(summary.input_tokens_per_s, 5);
}

TEST(SloSummaryTest, ARunWhoseRequestsWereLateIsInvalidWithItsReason) {
  LoopRun run;
  for (int i = 0; i < 100; ++i) run.records.push_back(answered(seconds(1), milliseconds(10), 1, Nanos(0)));
  run.records[0].sent = seconds(1) + milliseconds(50);
  EXPECT_THAT(summarize(run, kTwoSeconds).invalid, IsEmpty()) << "one of a hundred is not p99";
  run.records[1].sent = seconds(1) + milliseconds(40);
  const RunSummary late = summarize(run, kTwoSeconds);
  ASSERT_EQ(late.invalid.size(), 1u);
  EXPECT_THAT(late.invalid[0], HasSubstr("40.00 ms at p99, 2 ms are allowed"));
}

TEST(SloSummaryTest, ARunWhoseReaderWasBusyOrThatHadNothingToDoIsInvalid) {
  EXPECT_THAT(summarize({.reader_busy = 0.95}, kTwoSeconds).invalid,
              ::testing::ElementsAre(HasSubstr("read late"), HasSubstr("no request")));
}

TEST(SloSummaryTest, ARunWhoseGeneratorHadNoDescriptorsLeftIsInvalid) {
  LoopRun run;
  run.records = {failed(seconds(1), LoadOutcome::kError)};
  EXPECT_THAT(summarize(run, kTwoSeconds).invalid, IsEmpty());
  run.records[0].failed_here = true;
  EXPECT_THAT(summarize(run, kTwoSeconds).invalid, ::testing::ElementsAre(HasSubstr("1 requests failed here")));
}

TEST(SloSummaryTest, LatenessCountsInEveryTimeOfARequest) {
  LoadRecord record = answered(seconds(1), milliseconds(30), 2, milliseconds(5));
  record.sent = seconds(1) + milliseconds(20);
  EXPECT_EQ(record.ttft_ms(), 30) << "from when it was due, not from when it was sent";
  EXPECT_EQ(record.e2e_ms(), 35);
}

}  // namespace
}  // namespace nmc::lab
