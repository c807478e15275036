#include "store/s3_fifo.h"

#include <algorithm>

#include "base/check.h"

namespace nmc::store {
namespace {

constexpr std::uint8_t kUsesMax = 3;

}  // namespace

void GhostQueue::drop_stale_front() {
  while (!by_turn_.empty()) {
    const auto known = turns_.find(by_turn_.front().first);
    if (known != turns_.end() && known->second == by_turn_.front().second) return;
    by_turn_.pop_front();
  }
}

void GhostQueue::add(std::uint64_t key) {
  turns_[key] = ++turn_;
  by_turn_.emplace_back(key, turn_);
  if (turns_.size() > capacity_) {
    drop_stale_front();
    turns_.erase(by_turn_.front().first);
    by_turn_.pop_front();
  }
  if (by_turn_.size() > 2 * turns_.size() + 64) {
    std::erase_if(by_turn_, [this](const auto& entry) {
      const auto known = turns_.find(entry.first);
      return known == turns_.end() || known->second != entry.second;
    });
  }
}

bool GhostQueue::take(std::uint64_t key) { return turns_.erase(key) > 0; }

S3FifoPolicy::S3FifoPolicy(std::size_t capacity)
    : small_capacity_(std::max<std::size_t>(1, capacity / 10)),
      ghost_(capacity > small_capacity_ ? capacity - small_capacity_ : 0) {}

void S3FifoPolicy::insert(Id id, Stamp stamp, const Use& use) {
  NMC_REQUIRE(!contains(id), "id={}", id);
  if (id >= items_.size()) items_.resize(std::size_t{id} + 1);
  const bool known = ghost_.take(use.key);
  items_[id] = {use.key, stamp, known ? Queue::kMain : Queue::kSmall, 0};
  (known ? main_ : small_).push_back(id);
}

void S3FifoPolicy::touch(Id id, Stamp stamp, const Use&) {
  NMC_REQUIRE(contains(id), "id={}", id);
  Item& item = items_[id];
  if (stamp <= item.stamp) return;
  item.stamp = stamp;
  if (item.uses < kUsesMax) ++item.uses;
}

void S3FifoPolicy::move_to_main(Id id) {
  items_[id].queue = Queue::kMain;
  main_.push_back(id);
}

void S3FifoPolicy::erase(Id id) {
  NMC_REQUIRE(contains(id), "id={}", id);
  Item& item = items_[id];
  if (item.queue == Queue::kSmall && id == named_) ghost_.add(item.key);
  (item.queue == Queue::kSmall ? small_ : main_).erase(id);
  item.queue = Queue::kNone;
  named_ = IdLinks::kNone;
}

// Ends: a round through the main queue takes a use off each.
std::optional<EvictionPolicy::Candidate> S3FifoPolicy::victim() {
  if (size() == 0) return std::nullopt;
  for (;;) {
    const bool from_small = small_.size() > small_capacity_ || main_.size() == 0;
    const Id id = (from_small ? small_ : main_).front();
    Item& item = items_[id];
    if (item.uses <= (from_small ? 1 : 0)) {
      named_ = id;
      return Candidate{id, item.stamp};
    }
    (from_small ? small_ : main_).erase(id);
    item.uses = from_small ? std::uint8_t{0} : static_cast<std::uint8_t>(item.uses - 1);
    move_to_main(id);
  }
}

}  // namespace nmc::store
