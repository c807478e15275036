#include "kernels/targets.h"
// Compiled once for each instruction set.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/sampling.cc"
#include "hwy/foreach_target.h"
//
#include <limits>

#include "kernels/kernels.h"
#include "kernels/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace nmc::kernels::HWY_NAMESPACE {

// The largest value that isn't a NaN; minus infinity if there is none.
float largest(const float* values, std::size_t count) {
  const F32 f32;
  const float lowest = -std::numeric_limits<float>::infinity();
  auto best = hn::Set(f32, lowest);
  std::size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    const auto v = hn::LoadU(f32, values + i);
    best = hn::IfThenElse(hn::Gt(v, best), v, best);
  }
  float result = hn::GetLane(hn::MaxOfLanes(f32, best));
  for (; i < count; ++i) {
    if (values[i] > result) result = values[i];
  }
  return result;
}

// Index of the first value equal to `wanted`; `count` if there is none.
std::size_t find_first(const float* values, std::size_t count, float wanted) {
  const F32 f32;
  const auto target = hn::Set(f32, wanted);
  std::size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    const auto lane = hn::FindFirstTrue(f32, hn::Eq(hn::LoadU(f32, values + i), target));
    if (lane >= 0) return i + static_cast<std::size_t>(lane);
  }
  while (i < count && values[i] != wanted) ++i;
  return i;
}

std::size_t argmax_of(const float* values, std::size_t count) {
  const std::size_t index = find_first(values, count, largest(values, count));
  return index < count ? index : 0;
}

}  // namespace nmc::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace nmc::kernels {
namespace {
HWY_EXPORT(argmax_of);
}  // namespace

std::size_t argmax(std::span<const float> values) {
  return HWY_DYNAMIC_DISPATCH(argmax_of)(values.data(), values.size());
}

}  // namespace nmc::kernels
#endif  // HWY_ONCE
