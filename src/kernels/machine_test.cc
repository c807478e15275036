#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/kernels.h"
#include "kernels/test_support.h"

namespace nmc::kernels {
namespace {

TEST(InstructionLevelTest, IsTheBestOfThisCpuAndStable) {
  const std::string level = instruction_level();
  EXPECT_EQ(level, hwy::TargetName(hwy::SupportedAndGeneratedTargets().front()));
  EXPECT_EQ(instruction_level(), level);
  EXPECT_THAT(level, testing::AnyOf("AVX3_DL", "AVX3", "AVX2", "NEON", "SCALAR", "EMU128"));
}

TEST(InstructionLevelTest, EveryCpuHasTheFallback) {
  EXPECT_THAT(hwy::SupportedAndGeneratedTargets().back(), testing::AnyOf(HWY_SCALAR, HWY_EMU128, HWY_NEON));
}

using LevelTest = EachTarget;
NMC_FOR_EACH_TARGET(LevelTest);

TEST_P(LevelTest, FollowsTheDispatcher) { EXPECT_EQ(instruction_level(), hwy::TargetName(GetParam())); }

TEST(MachineTest, LimitsArePlausible) {
  ThreadPool pool(available_cpus());
  const MachineLimits limits = measure_machine(pool);
  EXPECT_GT(limits.read_gb_s, 0.1);
  EXPECT_LT(limits.read_gb_s, 10'000);
  EXPECT_GT(limits.f32_gflop_s, 0.1);
  EXPECT_LT(limits.f32_gflop_s, 100'000);
}

}  // namespace
}  // namespace nmc::kernels
