#include "lab/open_loop.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <memory>
#include <set>

#include "base/mutex.h"
#include "lab/load_plan.h"
#include "net/http_server.h"

namespace nmc::lab {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::AnyOf;
using ::testing::HasSubstr;

constexpr std::string_view kToken = "data: {\"choices\":[{\"text\":\"x\",\"finish_reason\":null}]}\n\n";
constexpr std::string_view kLast =
    "data: {\"choices\":[{\"text\":\"y\",\"finish_reason\":\"length\"}]}\n\ndata: [DONE]\n\n";

using Exchange = std::shared_ptr<net::HttpExchange>;

void answer(net::HttpExchange& exchange) {
  exchange.begin_stream({});
  exchange.write(kToken);
  exchange.write(kLast);
  exchange.finish();
}

// A server whose answers the test writes; requests have their number as body.
class OpenLoopTest : public ::testing::Test {
 protected:
  using Handler = std::function<void(std::size_t number, Exchange exchange)>;

  void serve(Handler handler) {
    auto server = net::HttpServer::start({}, [handler](net::HttpRequest request, Exchange exchange) {
      handler(std::stoul(request.body), std::move(exchange));
    });
    ASSERT_TRUE(server.has_value());
    server_ = std::move(*server);
    target_.endpoint = *ApiEndpoint::parse(server_->url());
    target_.body = [](std::size_t index) { return std::to_string(index); };
  }

  LoopRun run(const LoopOptions& options) {
    auto run = run_loop(target_, options);
    EXPECT_TRUE(run.has_value()) << run.error().message;
    return run ? std::move(*run) : LoopRun{};
  }

  static std::vector<Nanos> uniform(double per_second, Nanos duration) {
    return plan_arrivals({.arrivals = Arrivals::kUniform, .per_second = per_second, .duration = duration});
  }

  std::unique_ptr<net::HttpServer> server_;
  LoadTarget target_;
};

// Only a sender that waits for no answer gets them all out: the server gives none before it has them.
TEST_F(OpenLoopTest, SendingDoesNotWaitForAnswers) {
  constexpr std::size_t kRequests = 60;
  Mutex mutex;
  std::vector<Exchange> held;
  serve([&](std::size_t, Exchange exchange) {
    MutexLock lock(mutex);
    held.push_back(std::move(exchange));
    if (held.size() < kRequests) return;
    for (const Exchange& each : held) answer(*each);
  });
  const LoopRun result = run({.arrivals = uniform(200, milliseconds(300)), .timeout = seconds(30)});
  ASSERT_EQ(result.records.size(), kRequests);
  for (const LoadRecord& record : result.records) {
    EXPECT_EQ(record.outcome, LoadOutcome::kOk) << record.reason;
    ASSERT_TRUE(record.sent);
    EXPECT_GE(*record.sent, record.planned) << "none goes out early";
    EXPECT_EQ(record.token_times.size(), 2u);
    EXPECT_GE(record.ended, result.records.back().planned) << "the stall shows in its time";
  }
}

TEST_F(OpenLoopTest, OutcomesAreToldApart) {
  Mutex mutex;
  std::vector<Exchange> held;
  serve([&](std::size_t number, Exchange exchange) {
    switch (number) {
      case 0: return answer(*exchange);
      case 1: return exchange->respond({.status = 429, .body = "full"});
      case 2: return exchange->respond({.status = 503, .body = "draining"});
      case 3: return exchange->respond({.status = 500, .body = "broken"});
      case 4:
        exchange->begin_stream({});
        exchange->write(kToken);
        return exchange->finish();
      case 5:
        exchange->begin_stream({});
        exchange->write(kToken);
        return;  // its last reference goes: the stream is cut off
      default: {
        MutexLock lock(mutex);
        held.push_back(std::move(exchange));
      }
    }
  });
  const LoopRun result = run({.arrivals = uniform(100, milliseconds(70)), .timeout = milliseconds(1500)});
  ASSERT_EQ(result.records.size(), 7u);
  const auto& records = result.records;
  EXPECT_EQ(records[0].outcome, LoadOutcome::kOk);
  EXPECT_EQ(records[0].finish_reason, "length");
  EXPECT_EQ(records[1].outcome, LoadOutcome::kRejected);
  EXPECT_EQ(records[1].status, 429);
  EXPECT_THAT(records[1].reason, HasSubstr("full"));
  EXPECT_EQ(records[2].outcome, LoadOutcome::kRejected);
  EXPECT_EQ(records[3].outcome, LoadOutcome::kError);
  EXPECT_THAT(records[3].reason, HasSubstr("status 500: broken"));
  EXPECT_EQ(records[4].outcome, LoadOutcome::kError);
  EXPECT_THAT(records[4].reason, HasSubstr("broke off after 1 chunks"));
  EXPECT_EQ(records[5].outcome, LoadOutcome::kError);
  EXPECT_THAT(records[5].reason, AnyOf(HasSubstr("broke off after 1 chunks"), HasSubstr("without an answer")))
      << "the server may drop what it hasn't written yet";
  EXPECT_EQ(records[6].outcome, LoadOutcome::kTimeout);
  EXPECT_GE(records[6].e2e_ms(), 1500);
  server_.reset();  // before what its handler refers to
}

TEST_F(OpenLoopTest, AClosedLoopKeepsItsNumberUnderWay) {
  std::atomic<std::size_t> under_way{0}, most{0};
  Mutex mutex;
  std::vector<Exchange> held;
  serve([&](std::size_t, Exchange exchange) {
    // Answers come in pairs: so two are under way, or the run would stand still.
    MutexLock lock(mutex);
    most = std::max(most.load(), ++under_way);
    held.push_back(std::move(exchange));
    if (held.size() < 2) return;
    under_way -= held.size();
    for (const Exchange& each : held) answer(*each);
    held.clear();
  });
  const LoopRun result = run({.concurrency = 2, .duration = seconds(30), .requests_max = 40, .timeout = seconds(30)});
  ASSERT_EQ(result.records.size(), 40u);
  EXPECT_EQ(most.load(), 2u);
  std::set<Nanos> ends = {Nanos(0)};
  for (const LoadRecord& record : result.records) ends.insert(record.ended);
  for (const LoadRecord& record : result.records) {
    EXPECT_EQ(record.outcome, LoadOutcome::kOk) << record.reason;
    EXPECT_TRUE(ends.contains(record.planned)) << "it is due when another one has ended";
  }
}

TEST_F(OpenLoopTest, AnInterruptedRunKeepsWhatHasEnded) {
  Mutex mutex;
  std::vector<Exchange> held;
  serve([&](std::size_t number, Exchange exchange) {
    if (number < 5) return answer(*exchange);
    MutexLock lock(mutex);
    held.push_back(std::move(exchange));
  });
  std::size_t ended = 0;
  LoopOptions options{.arrivals = uniform(100, seconds(3600)), .timeout = seconds(60)};
  options.should_stop = [&] {
    MutexLock lock(mutex);
    return held.size() >= 3 && ended >= 5;
  };
  options.on_progress = [&](std::size_t, std::size_t now_ended) { ended = now_ended; };
  const LoopRun result = run(options);
  EXPECT_TRUE(result.interrupted);
  ASSERT_GE(result.records.size(), 8u);
  for (const LoadRecord& record : result.records)
    EXPECT_EQ(record.outcome, record.index < 5 ? LoadOutcome::kOk : LoadOutcome::kUnfinished) << record.reason;
  server_.reset();  // before what its handler refers to
}

TEST_F(OpenLoopTest, ABodyLargerThanTheKernelTakesArrivesWhole) {
  std::atomic<std::size_t> bytes{0};
  serve([](std::size_t, Exchange) {});
  auto server = net::HttpServer::start({}, [&](net::HttpRequest request, Exchange exchange) {
    bytes = request.body.size();
    answer(*exchange);
  });
  ASSERT_TRUE(server.has_value());
  target_.endpoint = *ApiEndpoint::parse((*server)->url());
  target_.body = [](std::size_t) { return std::string(7 << 20, ' '); };
  const LoopRun result = run({.arrivals = {Nanos(0)}});
  ASSERT_EQ(result.records.size(), 1u);
  EXPECT_EQ(result.records[0].outcome, LoadOutcome::kOk) << result.records[0].reason;
  EXPECT_EQ(bytes.load(), 7u << 20);
}

TEST_F(OpenLoopTest, AServerThatGoesAwayMakesErrorsAndNoEndlessRun) {
  serve([&](std::size_t, Exchange exchange) { answer(*exchange); });
  bool gone = false;
  LoopOptions options{.arrivals = uniform(100, milliseconds(600)), .timeout = seconds(20)};
  options.on_progress = [&](std::size_t, std::size_t ended) {
    if (ended < 5 || gone) return;
    gone = true;
    server_.reset();
  };
  const LoopRun result = run(options);
  ASSERT_EQ(result.records.size(), 60u);
  EXPECT_EQ(result.records.front().outcome, LoadOutcome::kOk);
  EXPECT_EQ(result.records.back().outcome, LoadOutcome::kError);
  EXPECT_THAT(result.records.back().reason, HasSubstr("can't connect"));
}

TEST_F(OpenLoopTest, WithoutAServerItDoesNotBegin) {
  serve([](std::size_t, Exchange) {});
  server_.reset();
  const auto run = run_loop(target_, {.arrivals = {Nanos(0)}});
  ASSERT_FALSE(run.has_value());
  EXPECT_THAT(run.error().message, HasSubstr("can't connect"));
}

}  // namespace
}  // namespace nmc::lab
