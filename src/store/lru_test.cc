#include "store/lru.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <iostream>
#include <tuple>
#include <vector>

#include "base/rng.h"

namespace nmc::store {
namespace {

TEST(LruPolicyTest, LeastRecentlyUsedGoesFirst) {
  LruPolicy policy;
  EXPECT_FALSE(policy.victim());
  policy.insert(3, 10);
  policy.insert(1, 11);
  policy.insert(2, 12);
  EXPECT_EQ(policy.victim()->id, 3u);
  policy.touch(3, 13);
  EXPECT_EQ(policy.victim()->id, 1u);
  policy.erase(1);
  EXPECT_EQ(policy.victim()->id, 2u);
  EXPECT_EQ(policy.size(), 2u);
  EXPECT_FALSE(policy.contains(1));
}

TEST(LruPolicyTest, OfEqualStampsWhatWasToldFirst) {
  LruPolicy policy;
  for (std::uint32_t id = 0; id < 8; ++id) policy.insert(id, 5);
  for (std::uint32_t id = 0; id < 8; ++id) {
    EXPECT_EQ(policy.victim()->id, id);
    policy.erase(id);
  }
}

TEST(LruPolicyTest, AStampThatComesLateIsPutWhereItBelongs) {
  LruPolicy policy;
  policy.insert(0, 10);
  policy.insert(1, 30);
  policy.insert(2, 50);
  policy.touch(0, 40);
  EXPECT_EQ(policy.victim()->id, 1u);
  policy.touch(1, 20);  // older than what is known
  EXPECT_EQ(policy.victim()->stamp, 30u);
}

TEST(LruPolicyTest, AgreesWithASortedList) {
  constexpr std::uint64_t kSeed = 5;
  std::cout << "seed " << kSeed << "\n";
  Rng rng(kSeed);
  LruPolicy policy;
  std::vector<std::tuple<std::uint64_t, std::uint64_t, std::uint32_t>> model;  // stamp, order of telling, id
  std::uint64_t told = 0;
  const auto find = [&](std::uint32_t id) {
    return std::find_if(model.begin(), model.end(), [id](const auto& item) { return std::get<2>(item) == id; });
  };
  for (int i = 0; i < 50000; ++i) {
    const auto id = static_cast<std::uint32_t>(rng.below(64));
    const std::uint64_t stamp = rng.below(1000);
    const auto known = find(id);
    ASSERT_EQ(policy.contains(id), known != model.end());
    if (known == model.end()) {
      policy.insert(id, stamp);
      model.emplace_back(stamp, told++, id);
    } else if (rng.below(3) == 0) {
      policy.erase(id);
      model.erase(known);
    } else {
      policy.touch(id, stamp);
      if (stamp > std::get<0>(*known)) *known = {stamp, told++, id};
      ASSERT_EQ(policy.stamp_of(id), std::get<0>(*known));
    }
    ASSERT_EQ(policy.size(), model.size());
    if (model.empty()) continue;
    ASSERT_EQ(policy.victim()->id, std::get<2>(*std::min_element(model.begin(), model.end())));
  }
}

}  // namespace
}  // namespace nmc::store
