// The operations of the store's benchmark, one case each. Internal to it.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/syscall.h"
#include "lab/load.h"
#include "lab/raw_socket.h"
#include "lab/store_bench.h"
#include "store/client.h"

namespace nmc::lab {

// The objects that are read: of each size some, so that a copy comes from memory as a store's does, not from a cache.
struct ReadSet {
  std::size_t bytes = 0;
  std::vector<std::string> keys;
};

// What all cases share: clients, objects, memory. Its objects go with it.
class BenchGround {
 public:
  static Result<std::unique_ptr<BenchGround>> create(const StoreBenchOptions& options);
  ~BenchGround();

  store::Client& client(StoreCarrier carrier);
  const ReadSet& read_set(std::size_t bytes) const;
  // The bytes of every object, or of as much of one.
  std::span<const std::byte> content(std::size_t bytes) const { return source_.bytes().first(bytes); }
  // A thread's own memory: as much as a call reads.
  std::span<std::byte> room(std::size_t thread, std::size_t bytes);
  // Where a copy that isn't the store's comes from: the n-th of as many places as the read set has objects.
  std::span<const std::byte> copy_source(std::size_t bytes, std::size_t n) const;
  RawSocket& socket() { return *socket_; }

  std::size_t batch_of(std::size_t bytes) const;
  // Objects of that size which a put may leave lying about.
  std::size_t put_room(std::size_t bytes) const { return std::max<std::size_t>(2, put_bytes_ / bytes); }
  std::uint64_t segment_bytes() const { return segment_bytes_; }
  std::string fresh_key() { return "nmc-bench/w/" + std::to_string(next_key_.fetch_add(1)); }

 private:
  explicit BenchGround(const StoreBenchOptions& options) : options_(options) {}
  Result<void> lay_out();
  Result<void> connect();
  Result<void> put_read_sets();

  const StoreBenchOptions& options_;
  std::size_t put_bytes_ = 0;
  std::uint64_t segment_bytes_ = 0;
  Mapping source_;
  std::vector<Mapping> rooms_;
  std::vector<ReadSet> read_sets_;
  std::atomic<std::uint64_t> next_key_{0};
  std::unique_ptr<store::Client> shm_, tcp_;
  std::unique_ptr<RawSocket> socket_;
};

// A case: its row's first five members. Runs one round of it, half of `time` in each loop.
struct RoundFigures {
  std::size_t calls = 0;  // of the closed loop, as all before `service`
  double seconds = 0;
  double core_wait = 0;
  double p50_us = 0, p95_us = 0, p99_us = 0;
  std::uint64_t logical_bytes = 0, physical_bytes = 0;
  double service_p50_us = 0, service_p99_us = 0;
  double wait_p50_us = 0, wait_p99_us = 0;
};
Result<RoundFigures> run_round(BenchGround& ground, const StoreBenchOptions& options, const StoreBenchRow& row,
                               Nanos time, std::uint64_t seed);
// Reads one object as the row's operation does and compares it.
Result<void> check_content(BenchGround& ground, const StoreBenchRow& row);

}  // namespace nmc::lab
