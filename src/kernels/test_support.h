// What the tests of this folder share: every instruction set of this CPU in turn, and numbers to compute with.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "base/rng.h"
#include "base/thread_pool.h"
#include "kernels/targets.h"
//
#include "hwy/highway.h"

namespace nmc::kernels {

// Runs each test once for every instruction set that is compiled in and that this CPU has.
class EachTarget : public testing::TestWithParam<std::int64_t> {
 protected:
  void SetUp() override { use(GetParam()); }
  void TearDown() override { use(0); }

  // 0: back to the best there is.
  static void use(std::int64_t target) {
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  }
};

inline std::string target_test_name(const testing::TestParamInfo<std::int64_t>& info) {
  return hwy::TargetName(info.param);
}

#define NMC_FOR_EACH_TARGET(suite) \
  INSTANTIATE_TEST_SUITE_P(Cpu, suite, testing::ValuesIn(hwy::SupportedAndGeneratedTargets()), target_test_name)

// Uniform in [-1, 1).
inline std::vector<float> random_floats(std::size_t count, std::uint64_t seed) {
  std::vector<float> values(count);
  Rng rng(seed);
  for (float& value : values) value = static_cast<float>(2 * rng.unit() - 1);
  return values;
}

inline std::vector<std::byte> narrowed(std::span<const float> values, Dtype dtype) {
  std::vector<std::byte> bytes(values.size() * dtype_bytes(dtype));
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::uint16_t half = dtype == Dtype::kBf16 ? bf16_from_f32(values[i]) : f16_from_f32(values[i]);
    if (dtype == Dtype::kF32)
      std::memcpy(&bytes[4 * i], &values[i], 4);
    else
      std::memcpy(&bytes[2 * i], &half, 2);
  }
  return bytes;
}

inline float element(std::span<const std::byte> bytes, Dtype dtype, std::size_t index) {
  if (dtype == Dtype::kF32) {
    float value;
    std::memcpy(&value, &bytes[4 * index], 4);
    return value;
  }
  std::uint16_t half;
  std::memcpy(&half, &bytes[2 * index], 2);
  return dtype == Dtype::kBf16 ? f32_from_bf16(half) : f32_from_f16(half);
}

// Bit for bit, so that NaN equals itself and -0 differs from 0.
inline bool same_bits(std::span<const float> a, std::span<const float> b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size_bytes()) == 0);
}

inline constexpr Dtype kAllDtypes[] = {Dtype::kF32, Dtype::kBf16, Dtype::kF16};

}  // namespace nmc::kernels
