// The process dies at any instant, by kill -9; every record that was acknowledged is there afterwards, byte for byte.
#include <gtest/gtest.h>

#include <csignal>
#include <map>
#include <memory>
#include <random>

#include "store/disk_log_test_support.h"

namespace nmc::store {
namespace {

// A child appends without end and reports through a pipe each number it got acknowledged; the parent kills it.
class CrashTest : public DiskLogTest {
 protected:
  static std::string key_of(std::uint64_t n) { return fmt::format("key{}", n); }
  static std::string payload_of(std::uint64_t n) { return content(n, 50 + n * 37 % 400); }

  // Appends numbers from `first` on, in records of one to three objects, until it is killed.
  [[noreturn]] void append_until_killed(std::uint64_t first, int pipe) {
    auto log = DiskLog::open(options_);
    if (!log) ::_exit(1);
    for (std::uint64_t n = first;;) {
      std::vector<std::pair<std::string, std::string>> objects;
      for (std::uint64_t i = 0; i < 1 + n % 3; ++i) objects.emplace_back(key_of(n + i), payload_of(n + i));
      std::vector<DiskItem> items;
      for (const auto& [key, payload] : objects) items.push_back({key, as_bytes(payload)});
      const auto sequence = (*log)->append(items);
      if (!sequence || (*log)->flush_mark() < *sequence) ::_exit(2);
      n += items.size();
      if (::write(pipe, &n, sizeof n) != sizeof n) ::_exit(3);
    }
  }

  // Starts a child, lets `arm` prepare it, kills it after `acknowledgements` unless it dies by itself before. Returns
  // the first number that wasn't acknowledged.
  std::uint64_t run_and_kill(std::uint64_t first, std::uint64_t acknowledgements,
                             const std::function<void()>& arm = {}) {
    int ends[2];
    EXPECT_EQ(::pipe2(ends, O_CLOEXEC), 0);
    const pid_t child = ::fork();
    if (child == 0) {
      ::close(ends[0]);
      if (arm) arm();
      append_until_killed(first, ends[1]);
    }
    ::close(ends[1]);
    std::uint64_t next = first, reported = 0;
    const auto receive = [&] {
      const ssize_t size = ::read(ends[0], &reported, sizeof reported);
      if (size == sizeof reported) next = reported;
      return size == sizeof reported;
    };
    while (acknowledgements > 0 && receive()) --acknowledgements;
    ::kill(child, SIGKILL);
    while (receive()) {  // what it got acknowledged before the signal reached it
    }
    ::close(ends[0]);
    int status = 0;
    ::waitpid(child, &status, 0);
    EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << "status " << status;
    return next;
  }

  void expect_all(std::uint64_t first, std::uint64_t last) {
    for (std::uint64_t n = first; n < last; ++n) ASSERT_TRUE(get(key_of(n)) == payload_of(n)) << n;
  }
};

// Kills this process, as by kill -9, at the `pass`-th time it comes by.
void die_at(std::string_view failpoint_name, std::uint64_t pass) {
  auto left = std::make_shared<std::uint64_t>(pass);
  arm_failpoint(failpoint_name, FailpointAction::kCount, 0, [left] {
    if (--*left == 0) ::kill(::getpid(), SIGKILL);
  });
}

TEST_F(CrashTest, EveryAcknowledgedRecordIsThereAfterKillAt200RandomPoints) {
  options_.file_bytes = 16 << 10;
  const std::uint64_t seed = std::random_device()();
  SCOPED_TRACE(fmt::format("seed {}", seed));
  Rng rng(seed);
  std::uint64_t next = 0;
  for (int point = 0; point < 200; ++point) {
    SCOPED_TRACE(fmt::format("point {}", point));
    const std::uint64_t first = next;
    switch (rng.below(4)) {
      case 0: next = run_and_kill(first, ~0ull, [&] { die_at("disklog.append.partial", 1 + rng.below(40)); }); break;
      case 1: next = run_and_kill(first, ~0ull, [&] { die_at("disklog.seal", 1 + rng.below(2)); }); break;
      default: next = run_and_kill(first, rng.below(40)); break;
    }
    open();
    ASSERT_EQ(log_->stats().quarantined_entries, 0u) << log_->stats().quarantine_reasons.back();
    ASSERT_NO_FATAL_FAILURE(expect_all(point % 20 == 19 ? 0 : first, next));
    close();
  }
  EXPECT_GT(next, 1000u);
}

TEST_F(CrashTest, KillInTheMiddleOfCompactionLosesNothing) {
  options_.bytes_max = 256 << 10;
  options_.file_bytes = 16 << 10;
  options_.quarantine_bytes_max = 0;
  const std::uint64_t seed = std::random_device()();
  SCOPED_TRACE(fmt::format("seed {}", seed));
  Rng rng(seed);
  std::map<std::string, std::string> stays;
  open();
  for (int i = 0; i < 60; ++i) {
    const std::string key = fmt::format("stays{}", i);
    ASSERT_TRUE(put(key, stays[key] = content(i, 1000)));
    ASSERT_TRUE(put("removed", "x"));
    if (i % 3 == 0) {
      ASSERT_TRUE(*log_->remove("removed"));
    }
  }
  ASSERT_TRUE(*log_->remove("removed"));
  close();
  for (int point = 0; point < 60; ++point) {
    const char* const places[] = {"disklog.compact", "disklog.compact.renamed", "disklog.seal",
                                  "disklog.append.partial"};
    const char* place = places[rng.below(4)];
    const std::uint64_t pass = 1 + rng.below(place == places[3] ? 200 : 4);
    SCOPED_TRACE(fmt::format("point {}: {} pass {}", point, place, pass));
    const int code = exit_code_of([&] {
      auto log = DiskLog::open(options_);
      if (!log) return 1;
      die_at(place, pass);
      for (std::uint64_t n = 0; n < 20'000; ++n) {
        const std::string key = fmt::format("churn{}", rng.below(50)), payload = content(n, 1500);
        const DiskItem item{key, as_bytes(payload)};
        if (!(*log)->append({&item, 1})) return 2;
      }
      return 3;  // never came by
    });
    ASSERT_EQ(code, -SIGKILL);
    open();
    ASSERT_LE(folder_bytes(options_.folder), options_.bytes_max);
    ASSERT_EQ(log_->stats().quarantined_entries, 0u) << log_->stats().quarantine_reasons.back();
    ASSERT_EQ(log_->stats().dropped_objects, 0u);
    for (const auto& [key, payload] : stays) ASSERT_EQ(get(key), payload) << key;
    ASSERT_EQ(get("removed"), "-");
    close();
  }
}

}  // namespace
}  // namespace nmc::store
