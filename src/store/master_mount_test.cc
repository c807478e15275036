// Mounting takes a while, in which the master's lock is free.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>

#include "base/failpoint.h"
#include "store/master_test_support.h"

namespace nmc::store {
namespace {

using namespace std::chrono_literals;
using ::testing::Optional;
using testing::TestMaster;

// A mount that stands still where its memory was found, until release() or the end.
class HeldMount {
 public:
  HeldMount(TestMaster& master, std::string_view name, FailpointAction then = FailpointAction::kCount) {
    arm_failpoint("store.mount", then, 1, [this] {
      arrived_.set_value();
      released_.get_future().wait();
    });
    mounted_ = std::async(std::launch::async, [&master, name] { return master.core().mount(name, 4096, 0); });
    arrived_.get_future().wait();
  }
  ~HeldMount() {
    if (mounted_.valid()) (void)release();
    disarm_failpoints();
  }
  Result<std::uint32_t> release() {
    released_.set_value();
    return mounted_.get();
  }

 private:
  std::promise<void> arrived_, released_;
  std::future<Result<std::uint32_t>> mounted_;
};

// That it takes no lock which somebody holds who waits for us: false after a time in which it surely ends.
template <typename F>
bool ends(std::future<F>& done) {
  return done.wait_for(20s) == std::future_status::ready;
}

TEST(MasterMount, OthersPutReadParkAndUnmountMeanwhile) {
  TestMaster master;
  const std::uint32_t first = master.mount("a", 4096), second = master.mount("b", 8192);
  HeldMount held(master, "c");
  auto others = std::async(std::launch::async, [&] {
    EXPECT_TRUE(master.put("k", "value"));
    EXPECT_THAT(master.get("k"), Optional(std::string("value")));
    EXPECT_TRUE(master.core().park(first));
    EXPECT_TRUE(master.core().unmount(second));
    master.core().keep_house(10s);
    EXPECT_EQ(master.core().segments().size(), 1u) << "what is being mounted isn't there yet";
  });
  EXPECT_TRUE(ends(others));
  EXPECT_THAT(held.release(), ::testing::Truly([](const auto& number) { return number.has_value(); }));
}

TEST(MasterMount, TwoAtOnceGetANumberAndANameEach) {
  TestMaster master;
  HeldMount held(master, "a");
  auto same = std::async(std::launch::async, [&] { return master.core().mount("a", 4096, 0); });
  auto another = std::async(std::launch::async, [&] { return master.core().mount("b", 4096, 0); });
  EXPECT_EQ(held.release().value(), 0u);
  EXPECT_EQ(same.get().error().code, ErrorCode::kAlreadyExists);
  EXPECT_EQ(another.get().value(), 1u);
}

TEST(MasterMount, OneThatFailsLeavesNothing) {
  TestMaster master;
  HeldMount held(master, "a", FailpointAction::kError);
  ASSERT_TRUE(std::filesystem::exists(master.path() / "segment.0"));
  EXPECT_EQ(held.release().error().code, ErrorCode::kUnavailable);
  EXPECT_THAT(master.core().segments(), ::testing::IsEmpty());
  EXPECT_FALSE(std::filesystem::exists(master.path() / "segment.0"));
  EXPECT_EQ(master.mount("a", 4096), 0u);
}

// Its file has no header yet.
TEST(MasterMount, OneThatItsMasterDiedInIsNothingToTheNext) {
  TestMaster master;
  arm_failpoint("store.mount", FailpointAction::kCount, 1,
                [&] { std::filesystem::copy_file(master.path() / "segment.0", master.path() / "copy"); });
  master.mount("a", 4096);
  disarm_failpoints();
  ASSERT_TRUE(master.core().unmount(0));
  std::filesystem::rename(master.path() / "copy", master.path() / "segment.0");
  EXPECT_EQ(master.restart()->segments, 0u);
  EXPECT_FALSE(std::filesystem::exists(master.path() / "segment.0"));
  EXPECT_EQ(master.mount("a", 4096), 0u);
}

TEST(MasterMount, AWishBeyondAllMemoryCostsNobodyAParkedSegment) {
  TestMaster master;
  const std::uint32_t number = master.mount("host:1", 4096, 5);
  ASSERT_TRUE(master.put("k", "value"));
  ASSERT_TRUE(master.core().park(number));
  EXPECT_EQ(master.core().mount("large", std::uint64_t{1} << 46, 0).error().code, ErrorCode::kResourceExhausted);
  EXPECT_EQ(master.mount("host:2", 4096, 6), number);
  EXPECT_THAT(master.get("k"), Optional(std::string("value")));
}

}  // namespace
}  // namespace nmc::store
