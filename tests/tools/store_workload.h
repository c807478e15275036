// Random work on a store, with a log of what was asked and answered when, for tests that judge a history afterwards.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "base/files.h"
#include "base/result.h"
#include "base/rng.h"
#include "store/client.h"

namespace nmc::tools {

// Keys PREFIX0, PREFIX1, ... and what is done with them.
struct KeyRange {
  std::string prefix;
  std::uint32_t keys = 1;
  std::uint32_t bytes_max = 1024;  // of a value
  // Drawn from, one letter an operation. Writes: p put, u upsert, P and U several in one call. Reads: g, G several,
  // v a view that is kept for a while and checked again. Probes: e, E several, s size. Removals: x forced, r not.
  std::string operations;
  store::PutOptions options;
};

// Lines of text, each in the file before the next thing is done, so that a killed process leaves all but its last:
//   b NANOSECONDS OPERATION KEY[:SEED]...   asked (SEED: of the value to write)
//   e NANOSECONDS OUTCOME...                answered, one for each key: a code below 0, or the seed read, or 0
//   w TEXT                                  bytes were wrong
// Times are CLOCK_MONOTONIC's, the same for all processes of the host.
class OperationLog {
 public:
  static Result<OperationLog> open(const Path& path);
  Result<void> write(std::string line);

 private:
  UniqueFd file_;
};

// Not thread-safe.
class Workload {
 public:
  // Of the values it writes the upper 32 bits of the seed are `number`. `client` outlives it.
  Workload(store::Client& client, std::vector<KeyRange> ranges, OperationLog log, std::uint32_t number)
      : client_(client), ranges_(std::move(ranges)), log_(std::move(log)), rng_(number), number_(number) {}

  // `count` operations (0: for ever), or fewer if `stop` comes; how many.
  Result<std::uint64_t> run(std::uint64_t count, const std::atomic<bool>& stop);
  // Reads every key of every range once.
  Result<void> sweep();

 private:
  struct Held {
    std::string key;
    std::uint64_t seed;
    store::Client::View view;
  };
  Result<void> operate(const KeyRange& range, char operation, std::uint32_t first, std::uint32_t count);
  Result<void> write_some(const KeyRange& range, char operation, const std::vector<std::string>& keys);
  Result<void> read_some(const KeyRange& range, char operation, const std::vector<std::string>& keys);
  Result<void> view_one(const std::string& key);
  Result<void> probe_some(char operation, const std::vector<std::string>& keys);
  Result<void> remove_some(char operation, const std::vector<std::string>& keys);
  Result<void> release_oldest();

  Result<void> log_begin(char operation, const std::vector<std::string>& keys,
                         const std::vector<std::uint64_t>& seeds = {});
  Result<void> log_end(const std::vector<store::Outcome>& outcomes);

  store::Client& client_;
  const std::vector<KeyRange> ranges_;
  OperationLog log_;
  Rng rng_;
  const std::uint32_t number_;
  std::uint32_t writes_ = 0;
  std::deque<Held> held_;
};

}  // namespace nmc::tools
