// The inner kernel of weights products and attention: a tile of some rows by two vectors of columns, kept in registers
// while k runs. Whatever the tile, an element of the result is
//   y = fma(x[k-1], w[k-1], ... fma(x[1], w[1], fma(x[0], w[0], 0)))
// and continuing from a stored partial sum is exact, so that tiles and cuts along k are free choices.
#if defined(NMC_KERNELS_PRODUCT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef NMC_KERNELS_PRODUCT_INL_H_
#undef NMC_KERNELS_PRODUCT_INL_H_
#else
#define NMC_KERNELS_PRODUCT_INL_H_
#endif

#include <array>
#include <utility>

#include "kernels/kernels.h"
//
#include "kernels/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace nmc::kernels::HWY_NAMESPACE {

// Rows of the largest tile: two accumulators a row, and room for two vectors of columns and a broadcast.
// Sanitizers make compiling these slow, and all tiles are one template: their builds get fewer of them.
#if HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128 || defined(NMC_SANITIZED)
inline constexpr std::size_t kTileRows = 4;
inline constexpr std::size_t kDirectRows = 2;
#elif HWY_CAP_GE512 || HWY_ARCH_ARM
inline constexpr std::size_t kTileRows = 12;
inline constexpr std::size_t kDirectRows = 4;
#else
inline constexpr std::size_t kTileRows = 6;
inline constexpr std::size_t kDirectRows = 3;
#endif

// A strip is what a tile covers of a panel: kLanes columns from strip * kLanes on and as many from 16 + strip * kLanes
// on. The two are the low and high halves of kLanes 32-bit words in a bf16 panel (see pack.cc), two loads in others.
inline constexpr std::size_t kStrips = kPanelColumns / (2 * kLanes);

template <Dtype kType>
struct PanelStrip {
  static constexpr std::size_t kSecond = kPanelColumns / 2;  // distance of the two vectors in a row of y
  static constexpr std::size_t kRowBytes = kPanelColumns * dtype_bytes(kType);

  const std::byte* data;

  static PanelStrip at(const std::byte* panel, std::size_t strip) {
    return {panel + strip * kLanes * (kType == Dtype::kBf16 ? 4 : dtype_bytes(kType))};
  }
  HWY_INLINE void load(std::size_t k, VF& first, VF& second) const {
    const std::byte* row = data + k * kRowBytes;
    if constexpr (kType == Dtype::kBf16) {
      const auto words = hn::LoadU(U32(), reinterpret_cast<const std::uint32_t*>(row));
      first = hn::BitCast(F32(), hn::ShiftLeft<16>(words));
      second = hn::BitCast(F32(), hn::And(words, hn::Set(U32(), 0xffff0000u)));
    } else {
      first = load_widened<kType>(row);
      second = load_widened<kType>(row + kSecond * dtype_bytes(kType));
    }
  }
  HWY_INLINE void prefetch(std::size_t k) const {
    for (std::size_t line = 0; line < kRowBytes; line += 64) hwy::Prefetch(data + k * kRowBytes + line);
  }
};

// 2 * kLanes adjacent columns of an f32 matrix with any row stride.
struct DenseStrip {
  static constexpr std::size_t kSecond = kLanes;
  const float* data;
  std::size_t stride;

  HWY_INLINE void load(std::size_t k, VF& first, VF& second) const {
    first = hn::LoadU(F32(), data + k * stride);
    second = hn::LoadU(F32(), data + k * stride + kLanes);
  }
};

// x of a tile, [k][kRows].
template <std::size_t kRows>
struct PackedRows {
  const float* data;
  HWY_INLINE float at(std::size_t r, std::size_t k) const { return data[k * kRows + r]; }
};

// Rows of x where they lie. kStride 0: only known at run time.
template <std::size_t kStride>
struct StridedRows {
  const float* data;
  std::size_t stride;
  HWY_INLINE float at(std::size_t r, std::size_t k) const { return data[r * (kStride ? kStride : stride) + k]; }
};

// Bytes to fetch while a tile runs: `step` bytes for each k, from `data` on.
struct FetchAhead {
  const std::byte* data;
  std::size_t step;
  HWY_INLINE void operator()(std::size_t k) const { hwy::Prefetch(data + k * step); }
};
struct FetchNothing {
  HWY_INLINE void operator()(std::size_t) const {}
};

// y[r][...] = (resume ? y[r][...] : 0) + the chain over k of [0, depth).
template <std::size_t kRows, typename Rows, typename Strip, typename Fetch>
HWY_INLINE void product_tile(const Rows x, const Strip strip, std::size_t depth, float* y, std::size_t y_stride,
                             bool resume, const Fetch fetch) {
  const F32 f32;
  VF first[kRows];
  VF second[kRows];
  NMC_UNROLL
  for (std::size_t r = 0; r < kRows; ++r) {
    first[r] = hn::Zero(f32);
    second[r] = hn::Zero(f32);
  }
  if (resume) {
    NMC_UNROLL
    for (std::size_t r = 0; r < kRows; ++r) {
      first[r] = hn::LoadU(f32, y + r * y_stride);
      second[r] = hn::LoadU(f32, y + r * y_stride + Strip::kSecond);
    }
  }
  for (std::size_t k = 0; k < depth; ++k) {
    VF w0, w1;
    strip.load(k, w0, w1);
    fetch(k);
    NMC_UNROLL
    for (std::size_t r = 0; r < kRows; ++r) {
      const VF broadcast = hn::Set(f32, x.at(r, k));
      first[r] = hn::MulAdd(broadcast, w0, first[r]);
      second[r] = hn::MulAdd(broadcast, w1, second[r]);
    }
  }
  NMC_UNROLL
  for (std::size_t r = 0; r < kRows; ++r) {
    hn::StoreU(first[r], f32, y + r * y_stride);
    hn::StoreU(second[r], f32, y + r * y_stride + Strip::kSecond);
  }
}

// For one to kDirectRows rows: several strips side by side, so that enough chains are in flight to hide the latency of
// the multiply-add and of memory. Needs no packed x.
template <std::size_t kRows, std::size_t kWide, Dtype kType>
HWY_INLINE void product_wide(const StridedRows<0> x, const std::byte* panels, std::size_t panel_bytes,
                             std::size_t first_strip, std::size_t depth, float* y, std::size_t y_stride) {
  constexpr std::size_t kAhead = 16;  // rows of a panel to prefetch ahead
  using Strip = PanelStrip<kType>;
  const F32 f32;
  VF first[kRows * kWide];
  VF second[kRows * kWide];
  NMC_UNROLL
  for (std::size_t i = 0; i < kRows * kWide; ++i) {
    first[i] = hn::Zero(f32);
    second[i] = hn::Zero(f32);
  }
  const auto strip_at = [&](std::size_t s) {
    return Strip::at(panels + (first_strip + s) / kStrips * panel_bytes, (first_strip + s) % kStrips);
  };
  for (std::size_t k = 0; k < depth; ++k) {
    VF broadcast[kRows];
    NMC_UNROLL
    for (std::size_t r = 0; r < kRows; ++r) broadcast[r] = hn::Set(f32, x.at(r, k));
    NMC_UNROLL
    for (std::size_t s = 0; s < kWide; ++s) {
      const Strip strip = strip_at(s);
      if (s % kStrips == 0) strip.prefetch(k + kAhead);
      VF w0, w1;
      strip.load(k, w0, w1);
      NMC_UNROLL
      for (std::size_t r = 0; r < kRows; ++r) {
        first[s * kRows + r] = hn::MulAdd(broadcast[r], w0, first[s * kRows + r]);
        second[s * kRows + r] = hn::MulAdd(broadcast[r], w1, second[s * kRows + r]);
      }
    }
  }
  NMC_UNROLL
  for (std::size_t s = 0; s < kWide; ++s) {
    const std::size_t strip = first_strip + s;
    float* const at = y + strip / kStrips * kPanelColumns + strip % kStrips * kLanes;
    NMC_UNROLL
    for (std::size_t r = 0; r < kRows; ++r) {
      hn::StoreU(first[s * kRows + r], f32, at + r * y_stride);
      hn::StoreU(second[s * kRows + r], f32, at + r * y_stride + Strip::kSecond);
    }
  }
}

}  // namespace nmc::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
