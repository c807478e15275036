// The runtime of worker processes, with the workers in this process: the same messages over real sockets, and what only
// a test can do to a worker. tests/test_pd_process.py has them as processes, and kills them.
#include "engine/process_runtime.h"

#include <gtest/gtest.h>

#include <latch>
#include <thread>

#include "base/failpoint.h"
#include "base/files.h"
#include "engine/request_limits.h"
#include "engine/test_support.h"
#include "engine/worker_service.h"

namespace nmc::engine {
namespace {

using testing::Collector;
using testing::odd_config;
using testing::plain_pass;
using testing::random_tokens;
using testing::Trace;

struct Cluster {
  Transfer transfer = Transfer::kDirect;
  Reuse reuse = Reuse::kGlobal;
  int prefill = 1, decode = 1;
  Recovery recovery = Recovery::kRetryOnce;
  std::size_t blocks = 256;
  std::size_t max_batch_tokens = 32;
  std::size_t max_queue = 256, max_running = 64;
  Nanos lease = std::chrono::seconds(10);
  Nanos worker_deadline = std::chrono::seconds(5);
};

// Takes the first candidate each time, so that a test knows who has what.
class FirstPolicy final : public PlacementPolicy {
 public:
  const char* name() const override { return "first"; }
  std::size_t choose(const PlacementRequest&, std::span<const WorkerLoad>) override { return 0; }
};

class ProcessRuntimeTest : public ::testing::Test {
 protected:
  void TearDown() override {
    disarm_failpoints();
    runtime_.reset();
    services_.clear();
  }

  void start(const Cluster& setup) {
    setup_ = setup;
    auto folder = TemporaryFolder::create();
    ASSERT_TRUE(folder) << folder.error().message;
    folder_ = std::make_unique<TemporaryFolder>(*std::move(folder));
    auto decoder = model::Decoder::random(odd_config(), 7, Dtype::kF32, pool_);
    ASSERT_TRUE(decoder) << decoder.error().message;
    decoder_ = *std::move(decoder);
    store::StoreOptions options;
    options.block_bytes = layout().block_bytes();
    options.tail_bytes = std::size_t{1} << 20;
    options.dram_bytes = setup.blocks * options.block_bytes + *options.tail_bytes;
    auto store = store::Store::create(options);
    ASSERT_TRUE(store) << store.error().message;
    store_ = *std::move(store);
    ProcessRuntimeOptions process;
    for (int i = 0; i < setup.prefill; ++i) add_worker(process, "prefill", i);
    for (int i = 0; i < setup.decode; ++i) add_worker(process, "decode", i);
    process.runtime = runtime_options();
    process.recovery = setup.recovery;
    process.prefill_policy = std::make_unique<FirstPolicy>();
    process.decode_policy = std::make_unique<FirstPolicy>();
    process.worker_deadline = setup.worker_deadline;
    process.handover_lease = setup.lease;
    runtime_ = ProcessRuntime::create(std::move(process), odd_config(), ns(), *store_);
    const auto ready = runtime_->wait_ready(std::chrono::seconds(20));
    ASSERT_TRUE(ready) << ready.error().message;
  }

  kv::KvLayout layout() const { return decoder_->kv_layout(16); }
  kv::Namespace ns() const {
    kv::Namespace ns;
    ns.weights = decoder_->weights_digest();
    ns.config = odd_config().digest_text();
    ns.layout = layout();
    return ns;
  }
  RuntimeOptions runtime_options() {
    RuntimeOptions options;
    options.mode = Mode::kPdProcess;
    options.reuse = setup_.reuse;
    options.transfer = setup_.transfer;
    options.max_batch_tokens = setup_.max_batch_tokens;
    options.max_queue = setup_.max_queue;
    options.max_running = setup_.max_running;
    options.on_logits = [this](const std::string& id, std::size_t position, std::span<const float> logits) {
      MutexLock lock(mutex_);
      seen_[id][position] = sha256(std::as_bytes(logits));
    };
    return with_context_of(options, odd_config());
  }

  void add_worker(ProcessRuntimeOptions& process, const std::string& role, int number) {
    const std::string name = role + "-" + std::to_string(number);
    WorkerAddress address{.name = name, .role = role, .local = false};
    address.address = {.carrier = net::Carrier::kUnix, .path = socket_of(name)};
    process.workers.push_back(address);
    start_service(name);
  }
  std::string socket_of(const std::string& name) const { return (folder_->path() / name).string(); }
  void start_service(const std::string& name) {
    WorkerServiceOptions options;
    options.name = name;
    options.role = name.substr(0, name.find('-'));
    options.runtime = runtime_options();
    options.store = "the test's";
    options.unix_path = socket_of(name);
    if (setup_.transfer == Transfer::kTcp) options.tcp_host = "127.0.0.1";
    options.handover_lease = setup_.lease;
    auto service = WorkerService::start(options, *decoder_, ns(), *store_, pool_);
    ASSERT_TRUE(service) << service.error().message;
    services_[name] = *std::move(service);
  }

  GenerateRequest request(std::string id, std::vector<TokenId> prompt, std::size_t max_tokens) const {
    GenerateRequest made;
    made.id = std::move(id);
    made.prompt = std::move(prompt);
    made.max_tokens = max_tokens;
    made.sampling.temperature = 0;
    return made;
  }
  std::shared_ptr<Collector> submit(GenerateRequest request) {
    auto collector = std::make_shared<Collector>();
    const Result<void> done = runtime_->submit(std::move(request), collector);
    EXPECT_TRUE(done) << done.error().message;
    return collector;
  }
  std::vector<TokenId> prompt(std::size_t length, std::uint64_t seed = 1) const {
    return random_tokens(length, seed * 1000 + length, odd_config().vocab);
  }

  // Tokens and the digests of the logits they came from, by the decoder alone.
  struct Plain {
    std::vector<TokenId> tokens;
    std::vector<Digest> logits;
    bool operator==(const Plain&) const = default;
  };
  Plain plain(const std::vector<TokenId>& prompt, std::size_t max_tokens) {
    Plain result;
    result.tokens = plain_pass(*decoder_, pool_, layout(), prompt, max_tokens, [&](std::span<const float> logits) {
      result.logits.push_back(sha256(std::as_bytes(logits)));
    });
    return result;
  }
  Plain seen(const std::string& id, Collector& collector) {
    collector.wait();
    Plain result{collector.tokens(), {}};
    MutexLock lock(mutex_);
    for (const auto& [position, digest] : seen_[id]) result.logits.push_back(digest);
    return result;
  }

  // Until nobody holds anything: figures come a moment after the end of a request, and so may a taker that has begun to
  // make room for KV that turned out not to be needed.
  void expect_nothing_held() {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    RuntimeStatus status;
    std::size_t held = 0;
    do {
      status = runtime_->status();
      held = store_->held();
      std::this_thread::yield();
    } while ((status.counters.leaked_handles > 0 || status.counters.residual_slots > 0 || held > 0) &&
             std::chrono::steady_clock::now() < deadline);
    EXPECT_EQ(status.counters.leaked_handles, 0u);
    EXPECT_EQ(status.counters.residual_slots, 0u);
    EXPECT_EQ(status.queued, 0u);
    EXPECT_EQ(held, 0u);
  }

  Cluster setup_;
  ThreadPool pool_{2};
  std::unique_ptr<TemporaryFolder> folder_;
  std::unique_ptr<model::Decoder> decoder_;
  std::unique_ptr<store::Store> store_;
  Mutex mutex_;
  std::map<std::string, std::map<std::size_t, Digest>> seen_ NMC_GUARDED_BY(mutex_);  // logits by position
  std::map<std::string, std::unique_ptr<WorkerService>> services_;
  std::unique_ptr<ProcessRuntime> runtime_;
};

struct Way {
  Transfer transfer;
  Reuse reuse;
  int prefill, decode;
};
void PrintTo(const Way& way, std::ostream* out) {
  *out << transfer_name(way.transfer) << " " << reuse_name(way.reuse) << " " << way.prefill << "p" << way.decode << "d";
}

class EveryWay : public ProcessRuntimeTest, public ::testing::WithParamInterface<Way> {};

std::vector<Way> ways() {
  std::vector<Way> all;
  for (const Transfer transfer : {Transfer::kDirect, Transfer::kShm, Transfer::kTcp}) {
    for (const Reuse reuse : {Reuse::kNone, Reuse::kLocal, Reuse::kGlobal}) all.push_back({transfer, reuse, 1, 1});
    for (const auto& [prefill, decode] : {std::pair(2, 1), {1, 2}, {2, 2}})
      all.push_back({transfer, Reuse::kGlobal, prefill, decode});
  }
  return all;
}
INSTANTIATE_TEST_SUITE_P(All, EveryWay, ::testing::ValuesIn(ways()));

TEST_P(EveryWay, GivesTheBitsOfThePlainPass) {
  start({.transfer = GetParam().transfer,
         .reuse = GetParam().reuse,
         .prefill = GetParam().prefill,
         .decode = GetParam().decode});
  const std::size_t output = 6;
  for (int round = 0; round < 2; ++round) {  // the second time from the cache
    std::vector<std::shared_ptr<Collector>> collectors;
    const std::vector<std::size_t> lengths = {1, 15, 16, 17, 33, 48, 65, 97, 130};
    const auto id = [&](std::size_t length) { return fmt::format("{}-{}", length, round); };
    for (const std::size_t length : lengths) collectors.push_back(submit(request(id(length), prompt(length), output)));
    for (std::size_t i = 0; i < lengths.size(); ++i) {
      EXPECT_EQ(seen(id(lengths[i]), *collectors[i]), plain(prompt(lengths[i]), output)) << lengths[i];
      EXPECT_EQ(collectors[i]->wait().reason, FinishReason::kLength);
      EXPECT_EQ(collectors[i]->finishes(), 1);
      const RequestMetrics& metrics = collectors[i]->wait().metrics;
      EXPECT_EQ(metrics.output_tokens, output);
      EXPECT_EQ(metrics.computed_tokens + metrics.saved_tokens, lengths[i]);
      EXPECT_GT(metrics.snapshot_bytes, 0u);
      EXPECT_EQ(metrics.transfer_bytes > 0, GetParam().transfer != Transfer::kDirect) << lengths[i];
      if (round == 1 && GetParam().reuse == Reuse::kGlobal) {
        EXPECT_EQ(metrics.computed_tokens, 0u) << lengths[i];
      }
    }
  }
  expect_nothing_held();
  // Sealed blocks are gone with their request.
  if (GetParam().reuse == Reuse::kNone) {
    EXPECT_EQ(store_->stats().objects, 0u);
  }
}

TEST_F(ProcessRuntimeTest, OneTokenNeedsNoHandover) {
  start({.transfer = Transfer::kTcp});
  auto collector = submit(request("one", prompt(40), 1));
  EXPECT_EQ(collector->wait().reason, FinishReason::kLength);
  EXPECT_EQ(collector->tokens(), plain(prompt(40), 1).tokens);
  expect_nothing_held();
}

// The decode side has begun before the prompt was done.
TEST_F(ProcessRuntimeTest, ASnapshotIsTakenWhileItIsMade) {
  start({.transfer = Transfer::kShm, .reuse = Reuse::kNone, .max_batch_tokens = 16});
  std::atomic<int> pulls_before_the_end{0};
  std::atomic<bool> sent{false};
  arm_failpoint("handover.pull", FailpointAction::kCount, 0, [&] {
    if (!sent.load()) ++pulls_before_the_end;
  });
  arm_failpoint("handover.sent", FailpointAction::kCount, 0, [&] { sent.store(true); });
  // The second step waits for the first pull, which so comes long before the last.
  arm_failpoint(
      "worker.step", FailpointAction::kCount, 1,
      [&] {
        const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
        while (failpoint_fired("handover.pull") < 2 && std::chrono::steady_clock::now() < deadline)
          std::this_thread::yield();
      },
      2);
  auto collector = submit(request("long", prompt(200), 4));
  EXPECT_EQ(seen("long", *collector), plain(prompt(200), 4));
  EXPECT_GE(pulls_before_the_end.load(), 2);
  expect_nothing_held();
}

// ---- workers that die ----

TEST_F(ProcessRuntimeTest, ARequestGoesOnElsewhereWithTheSameTokens) {
  for (const Transfer transfer : {Transfer::kDirect, Transfer::kShm, Transfer::kTcp}) {
    for (const std::string lost : {"prefill-0", "decode-0"}) {
      SCOPED_TRACE(std::string(transfer_name(transfer)) + ", " + lost);
      TearDown();
      start({.transfer = transfer, .prefill = 2, .decode = 2, .max_batch_tokens = 16});
      const std::size_t wanted = lost == "decode-0" ? 5 : 0;
      auto collector = submit(request("moves", prompt(150), 1000));
      collector->wait_tokens(wanted);
      services_.erase(lost);  // its connections break, and its work is gone
      EXPECT_EQ(collector->wait().reason, FinishReason::kLength)
          << (collector->wait().error ? collector->wait().error->message : "");
      EXPECT_EQ(collector->tokens(), plain(prompt(150), 1000).tokens);
      EXPECT_EQ(collector->finishes(), 1);
      expect_nothing_held();
    }
  }
}

// What was told of the prompt before a worker was lost isn't told again by the next.
TEST_F(ProcessRuntimeTest, PromptLogprobsAreToldOnceWhoeverComputesThem) {
  std::latch lost(1);
  start({.prefill = 2});
  arm_failpoint(
      "worker.step", FailpointAction::kCount, 1, [&] { lost.wait(); }, 6);  // amid the prompt
  const auto ask = [&](const std::string& id) {
    GenerateRequest made = request(id, prompt(600), 4);
    made.prompt_logprobs = 2;
    return submit(std::move(made));
  };
  auto collector = ask("moves");
  EXPECT_EQ(collector->wait_prompt(6 * 32).size(), 6 * 32u);
  std::thread ending([&] { services_.erase("prefill-0"); });
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (runtime_->status().counters.worker_failures < 1 && std::chrono::steady_clock::now() < deadline)
    std::this_thread::yield();
  lost.count_down();
  ending.join();
  EXPECT_EQ(collector->wait().reason, FinishReason::kLength);
  EXPECT_EQ(collector->tokens(), plain(prompt(600), 4).tokens);
  EXPECT_EQ(runtime_->status().counters.worker_failures, 1u);
  auto again = ask("stays");
  EXPECT_EQ(again->wait().reason, FinishReason::kLength);
  const std::vector<PromptToken> moved = collector->wait_prompt(0), stayed = again->wait_prompt(0);
  ASSERT_EQ(moved.size(), 599u);
  ASSERT_EQ(stayed.size(), 599u);
  for (std::size_t i = 0; i < moved.size(); ++i) {
    ASSERT_EQ(moved[i].position, i + 1);
    ASSERT_EQ(moved[i].rank, stayed[i].rank);
    ASSERT_EQ(moved[i].logprobs.size(), 3u);
    ASSERT_EQ(moved[i].logprobs[0].logprob, stayed[i].logprobs[0].logprob);
  }
  expect_nothing_held();
}

TEST_F(ProcessRuntimeTest, AWorkerThatComesBackTakesItsRequestAgain) {
  start({.transfer = Transfer::kShm});
  auto collector = submit(request("waits", prompt(100), 1000));
  collector->wait_tokens(10);
  services_.erase("decode-0");
  start_service("decode-0");
  EXPECT_EQ(collector->wait().reason, FinishReason::kLength);
  EXPECT_EQ(collector->tokens(), plain(prompt(100), 1000).tokens);
  expect_nothing_held();
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (runtime_->status().workers[1].restarts < 1 && std::chrono::steady_clock::now() < deadline)
    std::this_thread::yield();
  EXPECT_EQ(runtime_->status().workers[1].restarts, 1u);
  EXPECT_EQ(runtime_->status().counters.worker_failures, 1u);
}

TEST_F(ProcessRuntimeTest, RecoveryFailEndsWhatWasAtTheWorkerOnly) {
  start({.decode = 1, .recovery = Recovery::kFail});
  auto collector = submit(request("lost", prompt(50), 3000));
  collector->wait_tokens(3);
  services_.erase("decode-0");
  EXPECT_EQ(collector->wait().reason, FinishReason::kFailed);
  ASSERT_TRUE(collector->wait().error);
  EXPECT_EQ(collector->wait().error->code, ErrorCode::kUnavailable);
  EXPECT_NE(collector->wait().error->message.find("decode-0"), std::string::npos);
  start_service("decode-0");
  auto next = submit(request("next", prompt(50), 5));
  EXPECT_EQ(next->wait().reason, FinishReason::kLength);
  expect_nothing_held();
}

TEST_F(ProcessRuntimeTest, RetryOtherFailsWhereThereIsNoOther) {
  start({.recovery = Recovery::kRetryOther});
  auto collector = submit(request("lost", prompt(50), 3000));
  collector->wait_tokens(3);
  services_.erase("decode-0");
  EXPECT_EQ(collector->wait().reason, FinishReason::kFailed);
  EXPECT_NE(collector->wait().error->message.find("there is no other"), std::string::npos);
  expect_nothing_held();
}

TEST_F(ProcessRuntimeTest, ASecondLossFails) {
  start({.decode = 2});
  auto collector = submit(request("unlucky", prompt(50), 3500));
  collector->wait_tokens(3);
  services_.erase("decode-0");
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (runtime_->status().counters.worker_failures < 1 && std::chrono::steady_clock::now() < deadline)
    std::this_thread::yield();
  collector->wait_tokens(collector->tokens().size() + 3);  // of the second one
  services_.erase("decode-1");
  EXPECT_EQ(collector->wait().reason, FinishReason::kFailed);
  EXPECT_NE(collector->wait().error->message.find("the second one"), std::string::npos);
  EXPECT_EQ(collector->finishes(), 1);
  expect_nothing_held();
}

// Its last token is out, and only the word that it was the last is lost with the worker.
TEST_F(ProcessRuntimeTest, ARequestThatHasSaidAllHasEnded) {
  for (const Recovery recovery : {Recovery::kRetryOnce, Recovery::kFail}) {
    for (const bool stops : {false, true}) {
      SCOPED_TRACE(stops);
      TearDown();
      std::latch lost(1);
      start({.recovery = recovery});
      const std::vector<TokenId> all = plain(prompt(50), 8).tokens;
      GenerateRequest made = request("said", prompt(50), 8);
      if (stops) made.stop_ids = {all[5]};
      const auto end = stops ? std::find(all.begin(), all.end(), all[5]) + 1 : all.end();
      const std::vector<TokenId> said(all.begin(), end);
      arm_failpoint("worker.finish", FailpointAction::kCount, 1, [&] { lost.wait(); });
      auto collector = submit(std::move(made));
      EXPECT_EQ(collector->wait_tokens(said.size()), said);
      std::thread ending([&] { services_.erase("decode-0"); });
      EXPECT_EQ(collector->wait().reason, stops ? FinishReason::kStop : FinishReason::kLength);
      lost.count_down();
      ending.join();
      EXPECT_EQ(failpoint_fired("worker.finish"), 1u);
      EXPECT_EQ(collector->tokens(), said);
      EXPECT_EQ(collector->finishes(), 1);
      expect_nothing_held();
    }
  }
}

// ---- hand-overs that are lost or late ----

TEST_F(ProcessRuntimeTest, LostKvIsComputedAgain) {
  for (const char* point : {"handover.allocate", "handover.send", "handover.pull", "handover.receive"}) {
    for (const Transfer transfer : {Transfer::kDirect, Transfer::kShm, Transfer::kTcp}) {
      SCOPED_TRACE(std::string(point) + ", " + transfer_name(transfer));
      TearDown();
      start({.transfer = transfer, .reuse = Reuse::kNone});
      arm_failpoint(point, FailpointAction::kError);
      auto collector = submit(request("again", prompt(70), 8));
      EXPECT_EQ(collector->wait().reason, FinishReason::kLength);
      EXPECT_EQ(collector->tokens(), plain(prompt(70), 8).tokens);
      const bool passed = transfer != Transfer::kDirect || point == std::string("handover.send") ||
                          point == std::string("handover.receive");
      EXPECT_EQ(failpoint_fired(point), passed ? 1u : 0u);
      expect_nothing_held();
      EXPECT_EQ(store_->stats().objects, 0u);
    }
  }
}

// Whoever comes late finds nothing, or the very block; never another's.
TEST_F(ProcessRuntimeTest, ATakerThatComesAfterItsProducerIsGoneComputesAgain) {
  for (const Transfer transfer : {Transfer::kDirect, Transfer::kShm, Transfer::kTcp}) {
    SCOPED_TRACE(transfer_name(transfer));
    TearDown();
    start({.transfer = transfer, .reuse = Reuse::kNone, .blocks = 24});
    arm_failpoint("handover.receive", FailpointAction::kCount, 1, [&] { services_.erase("prefill-0"); });
    auto collector = submit(request("late", prompt(70), 8));
    EXPECT_EQ(collector->wait().reason, FinishReason::kLength);
    EXPECT_EQ(collector->tokens(), plain(prompt(70), 8).tokens);
    start_service("prefill-0");
    expect_nothing_held();
  }
}

TEST_F(ProcessRuntimeTest, DroppedHandoversLeaveNothing) {
  for (const Transfer transfer : {Transfer::kDirect, Transfer::kShm, Transfer::kTcp}) {
    SCOPED_TRACE(transfer_name(transfer));
    TearDown();
    start({.transfer = transfer, .reuse = Reuse::kNone});
    for (int i = 0; i < 200; ++i) {
      const std::string id = fmt::format("dropped-{}", i);
      auto collector = submit(request(id, prompt(40), 2000));
      collector->wait_tokens(1);
      runtime_->cancel(id);
      EXPECT_EQ(collector->wait().reason, FinishReason::kCancelled);
    }
    expect_nothing_held();
    EXPECT_EQ(store_->stats().objects, 0u);
    auto collector = submit(request("after", prompt(40), 5));
    EXPECT_EQ(collector->wait().reason, FinishReason::kLength);
  }
}

// ---- admission ----

TEST_F(ProcessRuntimeTest, WhatTheQueueCantTakeIsRefusedAndTheRestIsServed) {
  start({.max_queue = 4, .max_running = 1});
  std::vector<std::shared_ptr<Collector>> taken;
  auto first = submit(request("first", prompt(30), 400));
  first->wait_tokens(1);
  int refused = 0;
  for (int i = 0; i < 12; ++i) {
    auto collector = std::make_shared<Collector>();
    const auto done = runtime_->submit(request(fmt::format("r{}", i), prompt(20, 2), 3), collector);
    if (done) {
      taken.push_back(collector);
      continue;
    }
    EXPECT_EQ(done.error().code, ErrorCode::kResourceExhausted);
    ++refused;
  }
  EXPECT_GE(refused, 7);
  runtime_->cancel("first");
  for (const auto& collector : taken) EXPECT_EQ(collector->wait().reason, FinishReason::kLength);
  expect_nothing_held();
}

TEST_F(ProcessRuntimeTest, DeadlinesEndWhatWaitsAndWhatRuns) {
  start({.max_running = 1});
  // A decode worker that stands still: the front keeps the time.
  std::atomic<bool> go{false};
  arm_failpoint(
      "worker.step", FailpointAction::kCount, 1,
      [&] {
        const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(20);
        while (!go.load() && std::chrono::steady_clock::now() < limit) std::this_thread::yield();
      },
      5);
  auto running = request("running", prompt(30), 3000);
  running.deadline = real_clock().now() + std::chrono::milliseconds(500);
  auto first = submit(running);
  first->wait_tokens(1);
  auto queued = request("queued", prompt(20), 3);
  queued.queue_deadline = real_clock().now();
  auto second = submit(queued);
  EXPECT_EQ(second->wait().error->code, ErrorCode::kUnavailable);
  EXPECT_NE(second->wait().error->message.find("waited in the queue"), std::string::npos);
  ASSERT_TRUE(first->wait().error);
  EXPECT_EQ(first->wait().error->code, ErrorCode::kDeadlineExceeded);
  go.store(true);
  expect_nothing_held();
}

TEST_F(ProcessRuntimeTest, DrainEndsWhatDoesNotFinishInTime) {
  start({});
  auto collector = submit(request("long", prompt(30), 3000));
  collector->wait_tokens(1);
  EXPECT_FALSE(runtime_->drain(std::chrono::milliseconds(20)));
  EXPECT_EQ(collector->wait().reason, FinishReason::kCancelled);
  EXPECT_EQ(runtime_->submit(request("late", prompt(5), 1), std::make_shared<Collector>()).error().code,
            ErrorCode::kUnavailable);
}

// Pool for about one and a half requests: they preempt each other and say what they say alone.
TEST_F(ProcessRuntimeTest, UnderMemoryPressureAllSayWhatTheySayAlone) {
  for (const Transfer transfer : {Transfer::kDirect, Transfer::kTcp}) {
    SCOPED_TRACE(transfer_name(transfer));
    TearDown();
    start({.transfer = transfer, .blocks = 20});
    std::vector<std::shared_ptr<Collector>> collectors;
    for (int i = 0; i < 4; ++i) collectors.push_back(submit(request(fmt::format("r{}", i), prompt(100, 10 + i), 100)));
    for (int i = 0; i < 4; ++i) {
      EXPECT_EQ(collectors[i]->wait().reason, FinishReason::kLength);
      EXPECT_EQ(collectors[i]->tokens(), plain(prompt(100, 10 + i), 100).tokens) << i;
    }
    expect_nothing_held();
  }
}

// A worker that was started for something else says what it has and what was wanted.
TEST_F(ProcessRuntimeTest, WorkersOfAnotherKindAreRefusedWithBothNamed) {
  start({});
  net::Address address{.carrier = net::Carrier::kUnix, .path = socket_of("prefill-0")};
  runtime_.reset();
  const auto ask = [&](const FrontHello& hello) {
    auto channel = net::Channel::connect(address);
    EXPECT_TRUE(channel);
    net::BodyWriter body;
    put_front_hello(body, hello);
    const auto reply = (*channel)->call({.op = static_cast<std::uint16_t>(WorkerOp::kHello), .body = body.bytes()});
    return reply ? std::string("taken") : reply.error().message;
  };
  kv::KvLayout other = layout();
  other.kv_heads = 4;
  FrontHello hello{.ns = ns().digest(), .layout = other.to_string(), .transfer = "direct"};
  const std::string layouts = ask(hello);
  EXPECT_NE(layouts.find(other.to_string()), std::string::npos) << layouts;
  EXPECT_NE(layouts.find(layout().to_string()), std::string::npos) << layouts;
  hello.layout = layout().to_string();
  hello.transfer = "tcp";
  EXPECT_NE(ask(hello).find("by direct, its front's"), std::string::npos) << ask(hello);
  hello.transfer = "direct";
  hello.ns = sha256(std::string_view("another model"));
  EXPECT_NE(ask(hello).find("namespace"), std::string::npos);
}

}  // namespace
}  // namespace nmc::engine
