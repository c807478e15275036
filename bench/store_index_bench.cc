// What a lookup in the shared index costs beside a find in a std::unordered_map of the same keys, in one run: rounds of
// all cases take turns, each reports its median and spread, and the ratio is the median of the rounds' ratios.
//
//   store_index_bench [--rounds N]
//
// exists: SharedStoreReader::contains(), a look without a hold. probe: the same, and counts as a use. view: a pin and
// its release. "busy" rounds have another thread put and evict all the time; it works on keys of its own, so that the
// looked-up ones stay, and on another core if there is one. Samples are whole passes over all keys.
#include <fmt/core.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <random>
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

struct Case {
  const char* name;
  std::function<std::uint64_t(const std::string&)> look;
  std::vector<double> ns = {};
};

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

long involuntary_switches() {
  rusage usage{};
  ::getrusage(RUSAGE_THREAD, &usage);
  return usage.ru_nivcsw;
}

class Bench {
 public:
  Bench(std::size_t keys, int rounds) : rounds_(rounds), clock_(real_clock()) {
    CoreOptions options;
    options.entries = {1 << 16, 1 << 22};
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

  void measure(const char* when) {
    std::vector<Case> cases = {
        {"unordered_map find", [this](const std::string& key) { return map_.find(key)->second; }},
        {"exists", [this](const std::string& key) { return std::uint64_t{reader_->contains(key)}; }},
        {"probe", [this](const std::string& key) { return std::uint64_t{reader_->probe(key)}; }},
        {"view", [this](const std::string& key) { return std::uint64_t{reader_->lookup(key)->bytes().size()}; }},
    };
    const std::size_t repeats = std::max<std::size_t>(1, 200'000 / keys_.size());
    std::uint64_t sink = 0;
    int dropped = 0;
    for (int round = -1; round < rounds_; ++round) {  // one that isn't counted
      for (Case& one : cases) {
        const long before = involuntary_switches();
        const auto start = std::chrono::steady_clock::now();
        for (std::size_t r = 0; r < repeats; ++r) {
          for (const std::string& key : keys_) sink += one.look(key);
        }
        const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
        const double ns = seconds * 1e9 / static_cast<double>(repeats * keys_.size());
        if (round >= 0) one.ns.push_back(ns);
        dropped += involuntary_switches() > before;
      }
    }
    for (const Case& one : cases) {
      std::vector<double> ratios;
      for (std::size_t i = 0; i < one.ns.size(); ++i) ratios.push_back(one.ns[i] / cases[0].ns[i]);
      fmt::print("{:>8} keys  {}  {:<20} {:7.1f} ns  ({:.1f} to {:.1f})  {:.2f} finds\n", keys_.size(), when, one.name,
                 median(one.ns), *std::min_element(one.ns.begin(), one.ns.end()),
                 *std::max_element(one.ns.begin(), one.ns.end()), median(ratios));
    }
    fmt::print("{:>8} keys  {}  {} of {} samples met an involuntary switch{}\n", keys_.size(), when, dropped,
               (rounds_ + 1) * static_cast<int>(cases.size()), sink == 1 ? " " : "");
  }

  const int rounds_;
  TouchClock clock_;
  std::unique_ptr<MasterCore> core_;
  std::unique_ptr<SharedStoreReader> reader_;
  std::unordered_map<std::string, std::uint64_t> map_;
  std::vector<std::string> keys_;
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
  for (const std::size_t keys : {std::size_t{10'000}, std::size_t{1'000'000}}) nmc::store::Bench(keys, rounds).run();
}
