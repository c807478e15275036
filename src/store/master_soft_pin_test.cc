// Soft pins end some time after their commit, however much the object is used, and go over to what replaces it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "store/master_test_support.h"

namespace nmc::store {
namespace {

using namespace std::chrono_literals;
using testing::TestMaster;
using How = MasterCore::Commit;

// A store of four small objects whose master gives soft pins a minute.
class MasterSoftPins : public ::testing::Test {
 protected:
  MasterSoftPins() : master_({.soft_pin_lifetime = 60s, .soft_pin_lifetime_max = 600s}) { master_.mount("a", 4 * 64); }

  void put(std::string_view key, How how = {}) { ASSERT_TRUE(master_.put(key, "v", how)) << key; }
  // Whether it is there after more was put than there is room for.
  bool outlives_a_burst(std::string_view key) {
    for (int i = 0; i < 8; ++i) put("burst" + std::to_string(i));
    return master_.get(key).has_value();
  }
  void let_pass(Nanos time) { master_.time().advance(time); }
  std::uint64_t soft_pinned() { return master_.stats().soft_pinned; }

  TestMaster master_;
};

TEST_F(MasterSoftPins, LastFromThePutOnHoweverOftenTheObjectIsUsed) {
  put("k", {.soft_pin = SoftPin::kPin});
  for (int i = 0; i < 5; ++i) {
    let_pass(11s);
    EXPECT_TRUE(outlives_a_burst("k")) << i;
  }
  EXPECT_EQ(soft_pinned(), 1u);
  let_pass(5s);
  EXPECT_EQ(soft_pinned(), 0u);
  EXPECT_TRUE(master_.get("k")) << "it doesn't go with its pin, but by its last use";
  EXPECT_FALSE(outlives_a_burst("k"));
}

TEST_F(MasterSoftPins, APutMayAskForATimeOfItsOwn) {
  put("short", {.soft_pin = SoftPin::kPin, .soft_pin_lifetime = 10s});
  put("long", {.soft_pin = SoftPin::kPin, .soft_pin_lifetime = 300s});
  put("beyond", {.soft_pin = SoftPin::kPin, .soft_pin_lifetime = 1000h});
  put("none", {.soft_pin = SoftPin::kPin, .soft_pin_lifetime = 0s});
  EXPECT_EQ(soft_pinned(), 3u);
  let_pass(11s);
  EXPECT_EQ(soft_pinned(), 2u);
  let_pass(280s);
  EXPECT_TRUE(outlives_a_burst("long"));
  EXPECT_EQ(master_.get("short"), std::nullopt);
  let_pass(10s);
  EXPECT_EQ(soft_pinned(), 1u);
  let_pass(300s);
  EXPECT_EQ(soft_pinned(), 0u) << "the most that a master grants";
}

TEST_F(MasterSoftPins, AReplacementKeepsWhatIsLeftUnlessItSaysOtherwise) {
  put("kept", {.soft_pin = SoftPin::kPin});
  put("anew", {.soft_pin = SoftPin::kPin});
  put("ended", {.soft_pin = SoftPin::kPin});
  let_pass(40s);
  put("kept", {.replace = true});
  put("anew", {.replace = true, .soft_pin = SoftPin::kPin});
  put("ended", {.replace = true, .soft_pin = SoftPin::kDrop});
  EXPECT_EQ(soft_pinned(), 2u);
  let_pass(21s);
  EXPECT_EQ(soft_pinned(), 1u);
  put("kept", {.replace = true});
  EXPECT_EQ(soft_pinned(), 1u) << "there is nothing left to keep";
  EXPECT_TRUE(outlives_a_burst("anew"));
  EXPECT_EQ(master_.get("kept"), std::nullopt);
}

TEST_F(MasterSoftPins, OfOneThatIsRemovedOrNotReplacedNothingStays) {
  put("k", {.soft_pin = SoftPin::kPin});
  EXPECT_EQ(master_.core().remove("k"), MasterCore::Removal::kRemoved);
  put("k", {.replace = true});
  EXPECT_EQ(soft_pinned(), 0u);
  put("k", {.soft_pin = SoftPin::kPin});
  EXPECT_EQ(soft_pinned(), 0u) << "the first put has the key";
}

TEST_F(MasterSoftPins, GoWithTheObjectToItsNextCopy) {
  const std::uint32_t other = master_.mount("b", 4 * 64);
  const std::vector<std::string> b = {"b"};
  const auto space = master_.reserve("v", {.preferred = b}).value();
  const std::vector<std::uint16_t> used = {space.at.segment};
  const auto copy = master_.reserve("v", {.avoid = used}).value();
  const MasterCore::Held copies[] = {{copy.entry, copy.generation}};
  ASSERT_TRUE(master_.commit(space, "k", {.soft_pin = SoftPin::kPin, .copies = copies}));
  let_pass(30s);
  ASSERT_TRUE(master_.core().unmount(other));
  EXPECT_TRUE(outlives_a_burst("k"));
  let_pass(31s);
  EXPECT_FALSE(outlives_a_burst("k"));
}

TEST_F(MasterSoftPins, OfAParkedSegmentGoOnWithIt) {
  const std::uint32_t number = master_.mount("host:1", 8 * 64, 5);
  const std::vector<std::string> preferred = {"host:1"};
  ASSERT_TRUE(master_.put("k", "v", {.soft_pin = SoftPin::kPin}, {.preferred = preferred}));
  ASSERT_TRUE(master_.put("l", "v", {.soft_pin = SoftPin::kPin, .soft_pin_lifetime = 300s}, {.preferred = preferred}));
  ASSERT_TRUE(master_.core().park(number));
  EXPECT_EQ(soft_pinned(), 0u);
  let_pass(61s);
  EXPECT_EQ(master_.mount("host:2", 8 * 64, 6), number);
  EXPECT_EQ(soft_pinned(), 1u);
}

// The index knows which objects are soft-pinned, not for how long.
TEST_F(MasterSoftPins, BeginAnewWithTheNextMasterButNotOnceTheyHaveEnded) {
  put("short", {.soft_pin = SoftPin::kPin, .soft_pin_lifetime = 10s});
  put("long", {.soft_pin = SoftPin::kPin, .soft_pin_lifetime = 600s});
  let_pass(11s);
  EXPECT_EQ(soft_pinned(), 1u);
  ASSERT_TRUE(master_.restart());
  EXPECT_EQ(soft_pinned(), 1u);
  let_pass(59s);
  EXPECT_TRUE(outlives_a_burst("long"));
  let_pass(2s);
  EXPECT_FALSE(outlives_a_burst("long"));
}

TEST_F(MasterSoftPins, EndInTheirOrderWhateverTheOrderOfTheirPuts) {
  for (int i = 0; i < 4; ++i)
    put("k" + std::to_string(i), {.soft_pin = SoftPin::kPin, .soft_pin_lifetime = 40s - i * 10s});
  for (std::uint64_t left = 3;; --left) {
    let_pass(10s + 1ms);
    EXPECT_EQ(soft_pinned(), left);
    if (left == 0) break;
  }
}

}  // namespace
}  // namespace nmc::store
