#include "store/eviction_policies.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <iostream>
#include <list>
#include <map>
#include <memory>
#include <tuple>
#include <vector>

#include "base/rng.h"
#include "store/frequency_sketch.h"
#include "store/s3_fifo.h"

namespace nmc::store {
namespace {

// A cache of keys over a policy. Ids are reused at once, as the store reuses its entries.
class Cache {
 public:
  Cache(std::string_view policy, std::size_t capacity)
      : capacity_(capacity), policy_(std::move(*create_eviction_policy(policy, capacity))) {}

  void use(std::uint64_t key, std::uint32_t position = 0, double saved_s = 1, double bytes = 1) {
    const Use use{.key = key, .position = position, .saved_s = saved_s, .bytes = bytes};
    if (const auto known = ids_.find(key); known != ids_.end()) {
      policy_->touch(known->second, ++stamp_, use);
      return;
    }
    std::uint32_t id = static_cast<std::uint32_t>(keys_.size());
    if (free_.empty()) {
      keys_.push_back(key);
    } else {
      id = free_.back();
      free_.pop_back();
      keys_[id] = key;
    }
    ids_[key] = id;
    policy_->insert(id, ++stamp_, use);
    while (ids_.size() > capacity_) {
      const auto victim = policy_->victim();
      ASSERT_TRUE(victim && policy_->contains(victim->id));
      ASSERT_EQ(policy_->victim()->id, victim->id) << "asked twice";
      remove(keys_[victim->id]);
    }
    ASSERT_EQ(policy_->size(), ids_.size());
  }

  void remove(std::uint64_t key) {
    policy_->erase(ids_[key]);
    free_.push_back(ids_[key]);
    ids_.erase(key);
  }

  std::vector<std::uint64_t> keys() const {
    std::vector<std::uint64_t> keys;
    for (const auto& [key, id] : ids_) keys.push_back(key);
    return keys;
  }

 private:
  std::size_t capacity_;
  std::unique_ptr<EvictionPolicy> policy_;
  std::map<std::uint64_t, std::uint32_t> ids_;
  std::vector<std::uint64_t> keys_;  // by id
  std::vector<std::uint32_t> free_;
  std::uint64_t stamp_ = 0;
};

using Keys = std::vector<std::uint64_t>;

Keys after(std::string_view policy, std::size_t capacity, const Keys& uses) {
  Cache cache(policy, capacity);
  for (const std::uint64_t key : uses) cache.use(key);
  return cache.keys();
}

TEST(EvictionPoliciesTest, EachNameMakesOneAndAnyOtherIsRefusedWithThem) {
  for (const char* name : eviction_policy_names()) EXPECT_TRUE(create_eviction_policy(name, 10)) << name;
  const auto wrong = create_eviction_policy("mru", 10);
  ASSERT_FALSE(wrong);
  for (const char* name : eviction_policy_names()) {
    EXPECT_NE(wrong.error().message.find(name), std::string::npos) << wrong.error().message;
  }
}

TEST(EvictionPoliciesTest, FifoPaysUsesNoHeed) { EXPECT_EQ(after("fifo", 2, {1, 2, 1, 1, 3}), (Keys{2, 3})); }

TEST(EvictionPoliciesTest, LfuKeepsWhatWasUsedMost) { EXPECT_EQ(after("lfu", 2, {1, 1, 2, 3}), (Keys{1, 3})); }

TEST(EvictionPoliciesTest, LfuLetsNobodyInPastWhatIsUsedMore) {
  EXPECT_EQ(after("lfu", 2, {1, 1, 2, 2, 3}), (Keys{1, 2}));
}

TEST(EvictionPoliciesTest, OfEqualUsesTheDeepestGoesThenTheOldest) {
  Cache cache("lfu-len", 2);
  cache.use(1, 5);
  cache.use(2, 3);
  cache.use(3, 3);
  EXPECT_EQ(cache.keys(), (Keys{2, 3}));
  cache.use(4, 3);
  EXPECT_EQ(cache.keys(), (Keys{3, 4}));
}

TEST(EvictionPoliciesTest, LengthAwareEvictsTheDeepestHoweverOftenUsed) {
  Cache cache("length-aware", 2);
  for (int i = 0; i < 5; ++i) cache.use(1, 9);
  cache.use(2, 0);
  cache.use(3, 1);
  EXPECT_EQ(cache.keys(), (Keys{2, 3}));
}

TEST(EvictionPoliciesTest, S3FifoBringsAGhostBackIntoTheMainQueue) {
  // A tenth of 20 is short. 0 leaves it unused, comes back as a ghost, and so outlives a scan.
  Keys uses;
  for (std::uint64_t key = 0; key <= 20; ++key) uses.push_back(key);
  uses.push_back(0);
  for (std::uint64_t key = 100; key < 140; ++key) uses.push_back(key);
  const Keys kept = after("s3-fifo", 20, uses);
  EXPECT_TRUE(std::find(kept.begin(), kept.end(), 0u) != kept.end());
  const Keys lru = after("lru", 20, uses);
  EXPECT_TRUE(std::find(lru.begin(), lru.end(), 0u) == lru.end());
}

TEST(EvictionPoliciesTest, ARemovedKeyIsNoGhost) {
  Cache cache("s3-fifo", 20);
  cache.use(1);
  cache.remove(1);
  cache.use(1);  // into the short queue again
  for (std::uint64_t key = 100; key < 140; ++key) cache.use(key);
  const Keys kept = cache.keys();
  EXPECT_TRUE(std::find(kept.begin(), kept.end(), 1u) == kept.end());
}

TEST(EvictionPoliciesTest, AdmissionByFrequencyOutlivesAScan) {
  Keys uses;
  for (int round = 0; round < 3; ++round) {
    for (std::uint64_t key = 0; key < 10; ++key) uses.push_back(key);
  }
  for (std::uint64_t key = 100; key < 160; ++key) uses.push_back(key);
  EXPECT_EQ(after("freq-admission", 10, uses), (Keys{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}));
}

TEST(EvictionPoliciesTest, WhatSavesLittleForItsBytesGoesFirst) {
  Cache cache("cost-per-byte", 2);
  cache.use(1, 0, 8, 2);  // 4 a byte
  cache.use(2, 0, 9, 3);  // 3
  cache.use(3, 0, 7, 1);  // 7
  EXPECT_EQ(cache.keys(), (Keys{1, 3}));
}

TEST(EvictionPoliciesTest, OldWorthFades) {
  Cache cache("cost-per-byte", 2);
  cache.use(1, 0, 5, 1);
  for (std::uint64_t key = 2; key < 30; ++key) cache.use(key, 0, 1, 1);
  const Keys kept = cache.keys();
  EXPECT_TRUE(std::find(kept.begin(), kept.end(), 1u) == kept.end());
}

// The same policies by lists and whole scans.
struct Naive {
  struct Item {
    std::uint64_t key, uses, used, came;
    std::uint32_t position;
    double worth;
  };
  using Order = std::function<bool(const Item&, const Item&)>;

  Naive(std::size_t capacity_of_it, Order order_of_it) : capacity(capacity_of_it), order(std::move(order_of_it)) {}
  virtual ~Naive() = default;

  virtual void use(std::uint64_t key, std::uint32_t position, double saved_s, double bytes) {
    ++now;
    auto known = std::find_if(items.begin(), items.end(), [key](const Item& item) { return item.key == key; });
    if (known == items.end()) {
      items.push_back({key, 0, now, now, position, 0});
      known = items.end() - 1;
    }
    known->used = now;
    known->position = position;
    known->worth = floor + static_cast<double>(++known->uses) * saved_s / bytes;
    if (items.size() <= capacity) return;
    const auto victim = std::min_element(items.begin(), items.end(), order);
    floor = std::max(floor, victim->worth);
    items.erase(victim);
  }
  virtual void remove(std::uint64_t key) {
    std::erase_if(items, [key](const Item& item) { return item.key == key; });
  }
  virtual Keys keys() const {
    Keys keys;
    for (const Item& item : items) keys.push_back(item.key);
    std::sort(keys.begin(), keys.end());
    return keys;
  }

  std::size_t capacity;
  Order order;
  std::vector<Item> items;
  std::uint64_t now = 0;
  double floor = 0;
};

struct NaiveS3 final : Naive {
  explicit NaiveS3(std::size_t capacity_of_it)
      : Naive(capacity_of_it, {}), small_max(std::max<std::size_t>(1, capacity_of_it / 10)) {}

  static bool has(const std::list<std::uint64_t>& list, std::uint64_t key) {
    return std::find(list.begin(), list.end(), key) != list.end();
  }
  void use(std::uint64_t key, std::uint32_t, double, double) override {
    if (const auto known = uses.find(key); known != uses.end()) {
      known->second = std::min(3, known->second + 1);
      return;
    }
    if (has(ghost, key)) {
      ghost.remove(key);
      main.push_back(key);
    } else {
      small.push_back(key);
    }
    uses[key] = 0;
    while (uses.size() > capacity) evict_or_move();
  }
  void evict_or_move() {
    const bool from_small = small.size() > small_max || main.empty();
    std::list<std::uint64_t>& from = from_small ? small : main;
    const std::uint64_t key = from.front();
    from.pop_front();
    if (from_small && uses[key] > 1) {
      main.push_back(key);
      uses[key] = 0;
    } else if (!from_small && uses[key] > 0) {
      --uses[key];
      main.push_back(key);
    } else {
      uses.erase(key);
      if (!from_small) return;
      ghost.push_back(key);
      if (ghost.size() > capacity - small_max) ghost.pop_front();
    }
  }
  void remove(std::uint64_t key) override {
    small.remove(key);
    main.remove(key);
    uses.erase(key);
  }
  Keys keys() const override {
    Keys keys;
    for (const auto& [key, count] : uses) keys.push_back(key);
    return keys;
  }

  std::size_t small_max;
  std::list<std::uint64_t> small, main, ghost;
  std::map<std::uint64_t, int> uses;
};

struct NaiveAdmission final : Naive {
  explicit NaiveAdmission(std::size_t capacity_of_it)
      : Naive(capacity_of_it, [](const Item& a, const Item& b) { return a.used < b.used; }), sketch(capacity_of_it) {}

  void use(std::uint64_t key, std::uint32_t position, double, double) override {
    ++now;
    sketch.add(key);
    const auto known = std::find_if(items.begin(), items.end(), [key](const Item& item) { return item.key == key; });
    if (known != items.end()) {
      known->used = now;
      return;
    }
    items.push_back({key, 1, now, now, position, 0});
    if (items.size() <= capacity) return;
    const auto oldest = std::min_element(items.begin(), items.end(), order);
    items.erase(sketch.count(key) < sketch.count(oldest->key) ? items.end() - 1 : oldest);
  }

  FrequencySketch sketch;
};

std::unique_ptr<Naive> naive(std::string_view policy, std::size_t capacity) {
  using Item = Naive::Item;
  Naive::Order order;
  if (policy == "s3-fifo") return std::make_unique<NaiveS3>(capacity);
  if (policy == "freq-admission") return std::make_unique<NaiveAdmission>(capacity);
  if (policy == "lru") order = [](const Item& a, const Item& b) { return a.used < b.used; };
  if (policy == "fifo") order = [](const Item& a, const Item& b) { return a.came < b.came; };
  if (policy == "lfu")
    order = [](const Item& a, const Item& b) { return std::tie(a.uses, a.used) < std::tie(b.uses, b.used); };
  if (policy == "lfu-len") {
    order = [](const Item& a, const Item& b) {
      return std::tie(a.uses, b.position, a.used) < std::tie(b.uses, a.position, b.used);
    };
  }
  if (policy == "length-aware") {
    order = [](const Item& a, const Item& b) { return std::tie(b.position, a.used) < std::tie(a.position, b.used); };
  }
  if (policy == "cost-per-byte") {
    order = [](const Item& a, const Item& b) { return std::tie(a.worth, a.used) < std::tie(b.worth, b.used); };
  }
  return std::make_unique<Naive>(capacity, order);
}

class EachEvictionPolicyTest : public testing::TestWithParam<const char*> {};

TEST_P(EachEvictionPolicyTest, KeepsWhatANaiveModelKeeps) {
  for (const std::size_t capacity : {1, 7, 40}) {
    const std::uint64_t seed = 11 + capacity;
    SCOPED_TRACE(testing::Message() << "seed " << seed << " capacity " << capacity);
    Rng rng(seed);
    Cache cache(GetParam(), capacity);
    const auto model = naive(GetParam(), capacity);
    for (int step = 0; step < 6000; ++step) {
      const std::uint64_t key = rng.below(1 + rng.below(3 * capacity + 3));  // the low ones more often
      const Keys here = cache.keys();
      if (rng.below(40) == 0 && std::find(here.begin(), here.end(), key) != here.end()) {
        // Of cost-per-byte, what is removed while it would be next counts as evicted.
        if (std::string_view(GetParam()) == "cost-per-byte") continue;
        cache.remove(key);
        model->remove(key);
      } else {
        const auto position = static_cast<std::uint32_t>(rng.below(6));
        const double saved_s = static_cast<double>(rng.below(5)), bytes = static_cast<double>(1 + rng.below(3));
        cache.use(key, position, saved_s, bytes);
        model->use(key, position, saved_s, bytes);
      }
      ASSERT_EQ(cache.keys(), model->keys()) << "step " << step;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, EachEvictionPolicyTest,
                         testing::ValuesIn(eviction_policy_names().begin(), eviction_policy_names().end()),
                         [](const auto& name) {
                           std::string text = name.param;
                           std::replace(text.begin(), text.end(), '-', '_');
                           return text;
                         });

TEST(FrequencySketchTest, IsNeverBelowTheTruthAndSeldomAbove) {
  FrequencySketch sketch(1000);
  std::map<std::uint64_t, std::uint32_t> truth;
  Rng rng(3);
  for (int i = 0; i < 5000; ++i) {  // below the additions that halve
    const std::uint64_t key = rng.below(1 + rng.below(2000));
    sketch.add(key);
    ++truth[key];
  }
  std::size_t above = 0;
  for (const auto& [key, count] : truth) {
    ASSERT_GE(sketch.count(key), std::min(count, 15u));
    above += sketch.count(key) > count ? 1 : 0;
  }
  EXPECT_LT(above, truth.size() / 10);
}

TEST(FrequencySketchTest, WhatWasPopularIsForgotten) {
  FrequencySketch sketch(100);
  for (int i = 0; i < 15; ++i) sketch.add(7);
  EXPECT_EQ(sketch.count(7), 15u);
  for (std::uint64_t key = 1000; key < 5000; ++key) sketch.add(key);
  EXPECT_LE(sketch.count(7), 10u);  // others' counts lie on top
}

TEST(GhostQueueTest, ForgetsTheOldestAndStaysSmall) {
  GhostQueue ghost(3);
  for (std::uint64_t key = 0; key < 4; ++key) ghost.add(key);
  EXPECT_FALSE(ghost.take(0));
  EXPECT_TRUE(ghost.take(2));
  EXPECT_FALSE(ghost.take(2));
  ghost.add(4);
  ghost.add(5);
  EXPECT_FALSE(ghost.take(1));
  EXPECT_TRUE(ghost.take(3));
  EXPECT_EQ(ghost.size(), 2u);
}

}  // namespace
}  // namespace nmc::store
