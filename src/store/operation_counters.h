// What a master was asked for and how it went, for its metrics. Counted where messages are answered; what clients of
// this host read by themselves from shared memory is no message.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace nmc::store {

enum class Operation : std::uint8_t {
  kExistKey,
  kGetReplicaList,  // where an object is, how large it is, or its bytes
  kPutStart,
  kPutEnd,
  kPutRevoke,
  kRemove,
  kRemoveByRegex,
  kRemoveAll,
  kMountSegment,
  kUnmountSegment,
  kPing,
};
inline constexpr std::size_t kOperations = 11;

// Thread-safe; each figure by itself is right, one relaxed addition a message or two.
class OperationCounters {
 public:
  // Messages of one item, and for operations that have no batch form one item of a message each.
  struct Single {
    std::uint64_t requests = 0, failures = 0;
  };
  // Messages of several items, or of none.
  struct Batch {
    std::uint64_t requests = 0;
    std::uint64_t failures = 0;           // none of the items went well
    std::uint64_t partial_successes = 0;  // some didn't
    std::uint64_t items = 0, failed_items = 0;
  };
  static constexpr std::array<std::uint64_t, 7> kValueBounds = {4 << 10, 64 << 10, 256 << 10, 1 << 20,
                                                                4 << 20, 16 << 20, 64 << 20};
  struct Values {
    std::array<std::uint64_t, kValueBounds.size() + 1> at_most{};  // by bound, without the smaller ones; last: larger
    std::uint64_t bytes = 0;
  };

  // A message with `items` items, `failed` of which didn't go well.
  void count(Operation operation, std::size_t items, std::size_t failed) {
    if (items == 1) return count_each(operation, items, failed);
    BatchCounters& batch = batch_[index(operation)];
    add(batch.requests, 1);
    add(batch.items, items);
    if (failed == 0) return;
    add(batch.failed_items, failed);
    add(failed == items ? batch.failures : batch.partial_successes, 1);
  }
  // The same where every item counts as a request.
  void count_each(Operation operation, std::size_t items, std::size_t failed) {
    add(single_[index(operation)].requests, items);
    if (failed > 0) add(single_[index(operation)].failures, failed);
  }
  // An object that was given space.
  void count_value(std::uint64_t bytes) {
    std::size_t bound = 0;
    while (bound < kValueBounds.size() && bytes > kValueBounds[bound]) ++bound;
    add(values_[bound], 1);
    add(value_bytes_, bytes);
  }
  // One that wasn't, for want of room.
  void count_no_room() { add(no_room_, 1); }

  Single single(Operation operation) const {
    const SingleCounters& counters = single_[index(operation)];
    return {.requests = get(counters.requests), .failures = get(counters.failures)};
  }
  Batch batch(Operation operation) const {
    const BatchCounters& counters = batch_[index(operation)];
    return {.requests = get(counters.requests),
            .failures = get(counters.failures),
            .partial_successes = get(counters.partial_successes),
            .items = get(counters.items),
            .failed_items = get(counters.failed_items)};
  }
  Values values() const {
    Values values{.bytes = get(value_bytes_)};
    for (std::size_t i = 0; i < values_.size(); ++i) values.at_most[i] = get(values_[i]);
    return values;
  }
  std::uint64_t no_room() const { return get(no_room_); }

 private:
  using Counter = std::atomic<std::uint64_t>;
  struct SingleCounters {
    Counter requests{0}, failures{0};
  };
  struct BatchCounters {
    Counter requests{0}, failures{0}, partial_successes{0}, items{0}, failed_items{0};
  };
  static std::size_t index(Operation operation) { return static_cast<std::size_t>(operation); }
  // Relaxed: figures, they order nothing.
  static void add(Counter& counter, std::uint64_t by) { counter.fetch_add(by, std::memory_order_relaxed); }
  static std::uint64_t get(const Counter& counter) { return counter.load(std::memory_order_relaxed); }

  std::array<SingleCounters, kOperations> single_;
  std::array<BatchCounters, kOperations> batch_;
  std::array<Counter, kValueBounds.size() + 1> values_{};
  Counter value_bytes_{0}, no_room_{0};
};

}  // namespace nmc::store
