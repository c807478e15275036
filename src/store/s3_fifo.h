// S3-FIFO (Yang and others, 2023): a small queue that newcomers have to leave with two uses or more, a main queue where
// each use gives another round, and a ghost that remembers the names of those that left the small one: they come back
// into the main one.
#pragma once

#include <cstdint>
#include <deque>
#include <unordered_map>
#include <vector>

#include "store/eviction.h"
#include "store/id_list.h"

namespace nmc::store {

// The names of the last `capacity` things that went, the oldest forgotten first. Not thread-safe.
class GhostQueue {
 public:
  explicit GhostQueue(std::size_t capacity) : capacity_(capacity) {}
  void add(std::uint64_t key);   // isn't in it
  bool take(std::uint64_t key);  // whether it was in it; no longer is
  std::size_t size() const { return turns_.size(); }

 private:
  void drop_stale_front();

  std::size_t capacity_;
  std::uint64_t turn_ = 0;
  std::unordered_map<std::uint64_t, std::uint64_t> turns_;       // key -> when it went
  std::deque<std::pair<std::uint64_t, std::uint64_t>> by_turn_;  // (key, turn); of one taken since, stale
};

class S3FifoPolicy final : public EvictionPolicy {
 public:
  // `capacity` things are going to be here: a tenth of that, at least one, is the small queue's, the ghost is as long
  // as the rest.
  explicit S3FifoPolicy(std::size_t capacity);

  void insert(Id id, Stamp stamp, const Use& use) override;
  void touch(Id id, Stamp stamp, const Use& use) override;
  void erase(Id id) override;
  std::optional<Candidate> victim() override;
  bool contains(Id id) const override { return id < items_.size() && items_[id].queue != Queue::kNone; }
  Stamp stamp_of(Id id) const override { return items_[id].stamp; }
  std::size_t size() const override { return small_.size() + main_.size(); }

 private:
  enum class Queue : std::uint8_t { kNone, kSmall, kMain };
  struct Item {
    std::uint64_t key = 0;
    Stamp stamp = 0;
    Queue queue = Queue::kNone;
    std::uint8_t uses = 0;  // since it came into the queue, up to 3
  };
  void move_to_main(Id id);

  std::size_t small_capacity_;
  std::vector<Item> items_;  // by id
  IdLinks links_;
  IdList small_{links_}, main_{links_};
  GhostQueue ghost_;
  std::uint32_t named_ = IdLinks::kNone;  // the victim that was named last
};

}  // namespace nmc::store
