// What a lookup in the shared index costs beside a find in a std::unordered_map of the same keys, in one run: rounds of
// all cases take turns, each reports its median and spread, and the ratio is the median of the rounds' ratios.
//
//   store_index_bench [--rounds N]
//
// exists: SharedStoreReader::contains(), a look without a hold. probe: the same, and counts as a use. view: a pin and
// its release. "busy" rounds have another thread put and evict all the time, on another core if there is one; it works
// on keys of its own, so that the looked-up ones stay.
//
// A sample is some thousand looks. It is dropped, and counted as such, when the scheduler took the core away meanwhile.
// 10,000 keys are hot: all of them were looked up just before. Of a million none was: each case goes on where the one
// before stopped.
#include <fmt/core.h>
#include <sched.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "base/hash.h"
#include "store/master_core.h"
#include "store/shared_reader.h"

namespace nmc::store {
namespace {

std::string key_of(std::size_t i) { return fmt::format("study/{:032x}", i * 0x9e3779b97f4a7c15ull); }

using Keys = std::span<const std::string>;

struct Case {
  const char* name;
  std::function<std::uint64_t(Keys)> look_all;
  std::vector<double> round_ns = {};  // medians, a look
};

// A case whose `look` is inlined into the loop over the keys.
template <class Look>
Case make_case(const char* name, Look look) {
  return {name, [look](Keys keys) {
            std::uint64_t sum = 0;
            for (const std::string& key : keys) sum += look(key);
            return sum;
          }};
}

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

long involuntary_switches() {
  rusage usage{};
  ::getrusage(RUSAGE_THREAD, &usage);
  return usage.ru_nivcsw;
}

// Keeps the calling thread on the n-th core that the process may use, if there is one. A thread begins with the cores
// of the one that started it, so they are asked for once, before any thread is kept on one.
void stay_on_core(int n) {
  static const std::optional<cpu_set_t> all = [] {
    cpu_set_t set;
    return ::sched_getaffinity(0, sizeof set, &set) == 0 ? std::optional(set) : std::nullopt;
  }();
  if (!all) return;
  cpu_set_t one;
  CPU_ZERO(&one);
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (!CPU_ISSET(core, &*all) || n-- > 0) continue;
    CPU_SET(core, &one);
    ::sched_setaffinity(0, sizeof one, &one);
    return;
  }
}

class Bench {
 public:
  Bench(std::size_t keys, int rounds) : rounds_(rounds), clock_(real_clock()) {
    CoreOptions options;
    options.entries = {1 << 14, 1 << 22};
    core_ = MasterCore::create(options, SharedFiles::in_memory(), clock_).value();
    core_->mount("bench", (keys + 4096) * 64, 0).value();
    const PinTable* table = core_->add_client(Clients::Kind::kUser).value();
    reader_ = SharedStoreReader::open(core_->files_for(*table).value(), clock_).value();
    map_.reserve(keys);
    for (std::size_t i = 0; i < keys; ++i) {
      keys_.push_back(key_of(i));
      map_[keys_.back()] = i;
      put(keys_.back(), true);
    }
    std::shuffle(keys_.begin(), keys_.end(), std::mt19937(1));
  }

  void run() {
    measure("idle");
    std::atomic<bool> stop{false};
    std::uint64_t puts = 0;
    std::thread evictor([&] {
      stay_on_core(1);
      for (; !stop.load(std::memory_order_relaxed); ++puts) put(fmt::format("other/{}", puts), false);
    });
    measure("busy");
    stop.store(true);
    evictor.join();
    StoreStats stats;
    core_->fill_stats(stats);
    fmt::print("{:>8} keys  {} puts and {} evictions beside the busy rounds; index {} bytes a key in {} entries\n",
               keys_.size(), puts, stats.evicted_objects, 128 + 2 * 16, stats.index_entries);
  }

 private:
  void put(const std::string& key, bool keep) {
    const auto space = core_->reserve({.bytes = 64}).value();
    std::memset(space.bytes.data(), 1, space.bytes.size());
    MasterCore::Commit commit;
    commit.entry = space.entry;
    commit.generation = space.generation;
    commit.key = key;
    commit.stamp = clock_.stamp();
    commit.hard_pin = keep;
    commit.checksum = checksum64(std::span<const std::byte>(space.bytes));
    if (!core_->commit(commit)) std::abort();
  }

  static constexpr std::size_t kSampleLooks = 2'000;
  static constexpr std::size_t kRoundLooks = 50 * kSampleLooks;

  void measure(const char* when) {
    std::vector<Case> cases;
    cases.push_back(make_case("unordered_map find", [this](const std::string& key) { return map_.find(key)->second; }));
    cases.push_back(
        make_case("exists", [this](const std::string& key) { return std::uint64_t{reader_->contains(key)}; }));
    cases.push_back(make_case("probe", [this](const std::string& key) { return std::uint64_t{reader_->probe(key)}; }));
    cases.push_back(make_case(
        "view", [this](const std::string& key) { return std::uint64_t{reader_->lookup(key)->bytes().size()}; }));
    std::size_t samples = 0, dropped = 0;
    for (int round = -1; round < rounds_; ++round) {  // one that isn't counted
      for (Case& one : cases) {
        if (keys_.size() <= kRoundLooks) sink_ += one.look_all(keys_);
        std::vector<double> ns;
        for (std::size_t looks = 0; looks < kRoundLooks; looks += kSampleLooks) {
          const long before = involuntary_switches();
          const auto start = std::chrono::steady_clock::now();
          sink_ += one.look_all(Keys(keys_).subspan(at_, kSampleLooks));
          const std::chrono::duration<double, std::nano> spent = std::chrono::steady_clock::now() - start;
          at_ = (at_ + kSampleLooks) % keys_.size();
          ++samples;
          if (involuntary_switches() > before)
            ++dropped;
          else
            ns.push_back(spent.count() / kSampleLooks);
        }
        if (round >= 0) one.round_ns.push_back(median(std::move(ns)));
      }
    }
    for (const Case& one : cases) {
      std::vector<double> ratios;
      for (std::size_t i = 0; i < one.round_ns.size(); ++i) ratios.push_back(one.round_ns[i] / cases[0].round_ns[i]);
      fmt::print("{:>8} keys  {}  {:<20} {:7.1f} ns  ({:.1f} to {:.1f})  {:.2f} finds\n", keys_.size(), when, one.name,
                 median(one.round_ns), *std::min_element(one.round_ns.begin(), one.round_ns.end()),
                 *std::max_element(one.round_ns.begin(), one.round_ns.end()), median(ratios));
    }
    fmt::print("{:>8} keys  {}  {} of {} samples met an involuntary switch and were dropped{}\n", keys_.size(), when,
               dropped, samples, sink_ == 1 ? " " : "");
  }

  const int rounds_;
  TouchClock clock_;
  std::unique_ptr<MasterCore> core_;
  std::unique_ptr<SharedStoreReader> reader_;
  std::unordered_map<std::string, std::uint64_t> map_;
  std::vector<std::string> keys_;
  std::size_t at_ = 0;      // of keys_, where the next sample begins
  std::uint64_t sink_ = 0;  // keeps the looks from being optimised away
};

}  // namespace
}  // namespace nmc::store

int main(int argc, char** argv) {
  int rounds = 15;
  if (argc == 3 && std::string_view(argv[1]) == "--rounds") rounds = std::atoi(argv[2]);
  if (argc != 1 && argc != 3) {
    fmt::print(stderr, "usage: store_index_bench [--rounds N]\n");
    return 2;
  }
  nmc::store::stay_on_core(0);
  for (const std::size_t keys : {std::size_t{10'000}, std::size_t{1'000'000}}) nmc::store::Bench(keys, rounds).run();
}
