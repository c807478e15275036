// Vector helpers shared by the kernels, compiled once for each instruction set (no include guard in the usual sense).
//
// The compiler may fuse a product and a sum that stand apart in the source. So that no result depends on what it chose,
// a product here never feeds a plain addition: it is written as MulAdd, or it ends in a division, a product or a store.
#if defined(NMC_KERNELS_SIMD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef NMC_KERNELS_SIMD_INL_H_
#undef NMC_KERNELS_SIMD_INL_H_
#else
#define NMC_KERNELS_SIMD_INL_H_
#endif

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/dtype.h"
#include "kernels/targets.h"
//
#include "hwy/cache_control.h"
#include "hwy/highway.h"

// Tiles live in registers only when their loops are unrolled. With sanitizers that would cost minutes of compilation.
#undef NMC_UNROLL
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define NMC_UNROLL
#elif defined(__clang__)
#define NMC_UNROLL _Pragma("clang loop unroll(full)")
#else
#define NMC_UNROLL _Pragma("GCC unroll 32")
#endif

HWY_BEFORE_NAMESPACE();
namespace nmc::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// At most 16 lanes: half a row of a weight panel.
using F32 = hn::CappedTag<float, 16>;
using U32 = hn::RebindToUnsigned<F32>;
using I32 = hn::RebindToSigned<F32>;
using U16 = hn::Rebind<std::uint16_t, F32>;
using VF = hn::VFromD<F32>;

inline constexpr std::size_t kLanes = hn::MaxLanes(F32());

#undef NMC_NATIVE_F16
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL || HWY_TARGET == HWY_NEON
#define NMC_NATIVE_F16 1
#else
#define NMC_NATIVE_F16 0
#endif

// ---- Parts of a vector: `count` < kLanes elements, the rest zero ----------------------------------------------------

HWY_INLINE VF load_part(const float* from, std::size_t count) {
  HWY_ALIGN float buffer[kLanes] = {};
  std::memcpy(buffer, from, count * sizeof(float));
  return hn::Load(F32(), buffer);
}

HWY_INLINE void store_part(VF v, float* to, std::size_t count) {
  HWY_ALIGN float buffer[kLanes];
  hn::Store(v, F32(), buffer);
  std::memcpy(to, buffer, count * sizeof(float));
}

// ---- Conversions between the cache's types and f32 ------------------------------------------------------------------

// kLanes consecutive elements, widened exactly.
template <Dtype kType>
HWY_INLINE VF load_widened(const std::byte* from) {
  const F32 f32;
  if constexpr (kType == Dtype::kF32) {
    return hn::LoadU(f32, reinterpret_cast<const float*>(from));
  } else if constexpr (kType == Dtype::kBf16) {
    const auto bits = hn::LoadU(U16(), reinterpret_cast<const std::uint16_t*>(from));
    return hn::BitCast(f32, hn::ShiftLeft<16>(hn::PromoteTo(U32(), bits)));
  } else {
#if NMC_NATIVE_F16
    const hn::Rebind<hwy::float16_t, F32> f16;
    return hn::PromoteTo(f32, hn::LoadU(f16, reinterpret_cast<const hwy::float16_t*>(from)));
#else
    HWY_ALIGN float wide[kLanes];
    for (std::size_t i = 0; i < kLanes; ++i) {
      std::uint16_t half;
      std::memcpy(&half, from + 2 * i, sizeof half);
      wide[i] = f32_from_f16(half);
    }
    return hn::Load(f32, wide);
#endif
  }
}

// Widens `count` elements, whatever their number.
template <Dtype kType>
HWY_INLINE void widen(const std::byte* from, std::size_t count, float* to) {
  constexpr std::size_t kBytes = dtype_bytes(kType);
  std::size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) hn::StoreU(load_widened<kType>(from + i * kBytes), F32(), to + i);
  if (i == count) return;
  alignas(64) std::byte rest[kLanes * kBytes] = {};
  std::memcpy(rest, from + i * kBytes, (count - i) * kBytes);
  store_part(load_widened<kType>(rest), to + i, count - i);
}

// kLanes elements rounded to nearest even; same values as base/dtype.h gives (a NaN's payload may differ).
template <Dtype kType>
HWY_INLINE void store_narrowed(VF v, std::byte* to) {
  const F32 f32;
  if constexpr (kType == Dtype::kF32) {
    hn::StoreU(v, f32, reinterpret_cast<float*>(to));
  } else if constexpr (kType == Dtype::kBf16) {
    const U32 u32;
    const auto bits = hn::BitCast(u32, v);
    const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(u32, 1));
    const auto rounded = hn::Add(hn::Add(bits, hn::Set(u32, 0x7fff)), odd);
    const auto quiet = hn::Or(bits, hn::Set(u32, 0x400000));  // rounding could turn a NaN into infinity
    const auto is_nan = hn::RebindMask(u32, hn::Ne(v, v));
    const auto high = hn::ShiftRight<16>(hn::IfThenElse(is_nan, quiet, rounded));
    hn::StoreU(hn::TruncateTo(U16(), high), U16(), reinterpret_cast<std::uint16_t*>(to));
  } else {
#if NMC_NATIVE_F16
    const hn::Rebind<hwy::float16_t, F32> f16;
    hn::StoreU(hn::DemoteTo(f16, v), f16, reinterpret_cast<hwy::float16_t*>(to));
#else
    HWY_ALIGN float wide[kLanes];
    hn::Store(v, f32, wide);
    for (std::size_t i = 0; i < kLanes; ++i) {
      const std::uint16_t half = f16_from_f32(wide[i]);
      std::memcpy(to + 2 * i, &half, sizeof half);
    }
#endif
  }
}

// ---- exp ------------------------------------------------------------------------------------------------------------

// exp(x) for x <= 88, relative error below 2e-7; 0 below -87 (where results would be subnormal). NaN stays NaN. Each
// lane's result depends on that lane only.
HWY_INLINE VF exp_f32(VF x) {
  const F32 f32;
  const I32 i32;
  // Adding 1.5 * 2^23 rounds x / ln 2 to an integer n, which then sits in the low bits of the sum.
  const auto magic = hn::Set(f32, 12582912.0f);
  const auto shifted = hn::MulAdd(x, hn::Set(f32, 1.44269504f), magic);
  const auto n = hn::Sub(shifted, magic);
  // r = x - n ln 2 in two steps, so that |r| <= 0.35 is exact enough; then the Taylor polynomial to r^7.
  auto r = hn::NegMulAdd(n, hn::Set(f32, 0.693145752f), x);
  r = hn::NegMulAdd(n, hn::Set(f32, 1.42860677e-6f), r);
  auto p = hn::Set(f32, 1.0f / 5040);
  p = hn::MulAdd(p, r, hn::Set(f32, 1.0f / 720));
  p = hn::MulAdd(p, r, hn::Set(f32, 1.0f / 120));
  p = hn::MulAdd(p, r, hn::Set(f32, 1.0f / 24));
  p = hn::MulAdd(p, r, hn::Set(f32, 1.0f / 6));
  p = hn::MulAdd(p, r, hn::Set(f32, 0.5f));
  p = hn::MulAdd(p, r, hn::Set(f32, 1.0f));
  p = hn::MulAdd(p, r, hn::Set(f32, 1.0f));
  // p is in [0.7, 1.42] and the result is normal, so that 2^n is an addition to the exponent's bits.
  const auto power = hn::Add(hn::BitCast(i32, p), hn::ShiftLeft<23>(hn::BitCast(i32, shifted)));
  const auto nan_or_zero = hn::IfThenElseZero(hn::Ne(x, x), x);
  return hn::IfThenElse(hn::Ge(x, hn::Set(f32, -87.0f)), hn::BitCast(f32, power), nan_or_zero);
}

}  // namespace nmc::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
