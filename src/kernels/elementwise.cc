#include "kernels/targets.h"
// Compiled once for each instruction set.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/elementwise.cc"
#include "hwy/foreach_target.h"
//
#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "kernels/kernels.h"
#include "kernels/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace nmc::kernels::HWY_NAMESPACE {

HWY_INLINE VF load_some(const float* from, std::size_t i, std::size_t count) {
  return i + kLanes <= count ? hn::LoadU(F32(), from + i) : load_part(from + i, count - i);
}

HWY_INLINE void store_some(VF v, float* to, std::size_t i, std::size_t count) {
  if (i + kLanes <= count) return hn::StoreU(v, F32(), to + i);
  store_part(v, to + i, count - i);
}

float sum_of_squares(const float* x, std::size_t dim) {
  const F32 f32;
  VF sum[4];
  NMC_UNROLL
  for (VF& part : sum) part = hn::Zero(f32);
  std::size_t i = 0;
  for (; i + 4 * kLanes <= dim; i += 4 * kLanes) {
    NMC_UNROLL
    for (std::size_t j = 0; j < 4; ++j) {
      const auto v = hn::LoadU(f32, x + i + j * kLanes);
      sum[j] = hn::MulAdd(v, v, sum[j]);
    }
  }
  for (; i < dim; i += kLanes) {
    const auto v = load_some(x, i, dim);
    sum[0] = hn::MulAdd(v, v, sum[0]);
  }
  return hn::GetLane(hn::SumOfLanes(f32, hn::Add(hn::Add(sum[0], sum[1]), hn::Add(sum[2], sum[3]))));
}

void rms_norm_row(const float* x, std::size_t dim, const float* weight, float epsilon, float* out) {
  const float mean = sum_of_squares(x, dim) / static_cast<float>(dim);
  const auto scale = hn::Set(F32(), 1.0f / std::sqrt(mean + epsilon));
  for (std::size_t i = 0; i < dim; i += kLanes) {
    const auto normed = hn::Mul(load_some(x, i, dim), scale);
    store_some(hn::Mul(normed, load_some(weight, i, dim)), out, i, dim);
  }
}

void add_range(float* x, const float* y, std::size_t count) {
  for (std::size_t i = 0; i < count; i += kLanes) {
    store_some(hn::Add(load_some(x, i, count), load_some(y, i, count)), x, i, count);
  }
}

void silu_mul_row(const float* gate, std::size_t dim, float* out) {
  const F32 f32;
  const float* const up = gate + dim;
  for (std::size_t i = 0; i < dim; i += kLanes) {
    const auto x = load_some(gate, i, dim);
    const auto power = exp_f32(hn::Min(hn::Set(f32, 88.0f), hn::Neg(x)));  // beyond, the quotient is 0 for any purpose
    const auto silu = hn::Div(x, hn::Add(hn::Set(f32, 1.0f), power));
    store_some(hn::Mul(silu, load_some(up, i, dim)), out, i, dim);
  }
}

void rope_heads(float* x, std::size_t heads, std::size_t head_dim, const float* cos, const float* sin) {
  const std::size_t half = head_dim / 2;
  for (std::size_t head = 0; head < heads; ++head) {
    float* const low = x + head * head_dim;
    float* const high = low + half;
    for (std::size_t i = 0; i < half; i += kLanes) {
      const auto a = load_some(low, i, half);
      const auto b = load_some(high, i, half);
      const auto c = load_some(cos, i, half);
      const auto s = load_some(sin, i, half);
      store_some(hn::NegMulAdd(b, s, hn::Mul(a, c)), low, i, half);
      store_some(hn::MulAdd(a, s, hn::Mul(b, c)), high, i, half);
    }
  }
}

void widen_row(const std::byte* row, Dtype dtype, std::size_t dim, float* out) {
  switch (dtype) {
    case Dtype::kF32: return widen<Dtype::kF32>(row, dim, out);
    case Dtype::kBf16: return widen<Dtype::kBf16>(row, dim, out);
    case Dtype::kF16: return widen<Dtype::kF16>(row, dim, out);
  }
}

}  // namespace nmc::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace nmc::kernels {
namespace {

HWY_EXPORT(rms_norm_row);
HWY_EXPORT(add_range);
HWY_EXPORT(silu_mul_row);
HWY_EXPORT(rope_heads);
HWY_EXPORT(widen_row);

// Work below this many floats is done sooner than another thread wakes.
constexpr std::size_t kFloatsPerThread = 16384;

// Rows a thread takes at a time.
std::size_t rows_at_a_time(std::size_t row_floats) {
  return std::max<std::size_t>(1, kFloatsPerThread / std::max<std::size_t>(1, row_floats));
}

}  // namespace

void rms_norm(ThreadPool& pool, const float* x, std::size_t rows, std::size_t dim, const float* weight, float epsilon,
              float* out) {
  pool.parallel_for(rows, rows_at_a_time(dim), [&](std::size_t begin, std::size_t end, int) {
    for (std::size_t r = begin; r < end; ++r) {
      HWY_DYNAMIC_DISPATCH(rms_norm_row)(x + r * dim, dim, weight, epsilon, out + r * dim);
    }
  });
}

void rms_norm_heads(float* x, std::size_t heads, std::size_t head_dim, const float* weight, float epsilon) {
  for (std::size_t head = 0; head < heads; ++head) {
    float* const vector = x + head * head_dim;
    HWY_DYNAMIC_DISPATCH(rms_norm_row)(vector, head_dim, weight, epsilon, vector);
  }
}

void add_bias(ThreadPool& pool, float* x, std::size_t rows, std::size_t dim, const float* bias) {
  pool.parallel_for(rows, rows_at_a_time(dim), [&](std::size_t begin, std::size_t end, int) {
    for (std::size_t r = begin; r < end; ++r) HWY_DYNAMIC_DISPATCH(add_range)(x + r * dim, bias, dim);
  });
}

void add_rows(ThreadPool& pool, float* x, std::size_t x_stride, const float* y, std::size_t rows, std::size_t dim) {
  pool.parallel_for(rows, rows_at_a_time(dim), [&](std::size_t begin, std::size_t end, int) {
    for (std::size_t r = begin; r < end; ++r) HWY_DYNAMIC_DISPATCH(add_range)(x + r * x_stride, y + r * dim, dim);
  });
}

void add_in_place(ThreadPool& pool, float* x, const float* y, std::size_t count) {
  pool.parallel_for(count, kFloatsPerThread, [&](std::size_t begin, std::size_t end, int) {
    HWY_DYNAMIC_DISPATCH(add_range)(x + begin, y + begin, end - begin);
  });
}

void silu_mul(ThreadPool& pool, const float* gate_up, std::size_t rows, std::size_t dim, float* out) {
  pool.parallel_for(rows, rows_at_a_time(2 * dim), [&](std::size_t begin, std::size_t end, int) {
    for (std::size_t r = begin; r < end; ++r) {
      HWY_DYNAMIC_DISPATCH(silu_mul_row)(gate_up + 2 * r * dim, dim, out + r * dim);
    }
  });
}

void gather_row(const std::byte* table, Dtype dtype, std::size_t id, std::size_t dim, float* out) {
  HWY_DYNAMIC_DISPATCH(widen_row)(table + id * dim * dtype_bytes(dtype), dtype, dim, out);
}

void rope_in_place(float* x, std::size_t heads, std::size_t head_dim, const float* cos, const float* sin) {
  NMC_REQUIRE(head_dim % 2 == 0, "head_dim={}", head_dim);
  HWY_DYNAMIC_DISPATCH(rope_heads)(x, heads, head_dim, cos, sin);
}

}  // namespace nmc::kernels
#endif  // HWY_ONCE
