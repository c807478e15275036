#include "kernels/targets.h"
// Compiled once for each instruction set.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/kv_write.cc"
#include "hwy/foreach_target.h"
//
#include <algorithm>

#include "base/check.h"
#include "kernels/kernels.h"
#include "kernels/simd-inl.h"

#ifndef NMC_KERNELS_KV_WRITE_ONCE
#define NMC_KERNELS_KV_WRITE_ONCE
namespace nmc::kernels {
// Rows that fall in one block, from its position `at` on.
struct BlockRows {
  const float* k = nullptr;
  const float* v = nullptr;
  std::size_t row_stride = 0;
  std::size_t rows = 0;
  std::size_t at = 0;
  std::byte* span = nullptr;
};
}  // namespace nmc::kernels
#endif

HWY_BEFORE_NAMESPACE();
namespace nmc::kernels::HWY_NAMESPACE {

// `count` <= kLanes floats, narrowed.
template <Dtype kType>
HWY_INLINE void narrow(const float* from, std::size_t count, std::byte* to) {
  if (count == kLanes) return store_narrowed<kType>(hn::LoadU(F32(), from), to);
  alignas(64) std::byte all[kLanes * dtype_bytes(kType)];
  store_narrowed<kType>(load_part(from, count), all);
  std::memcpy(to, all, count * dtype_bytes(kType));
}

// V of one head: each row is one run of the block.
template <Dtype kType>
void write_values(const BlockRows& part, std::size_t head, std::size_t head_dim, std::byte* to) {
  constexpr std::size_t kBytes = dtype_bytes(kType);
  for (std::size_t r = 0; r < part.rows; ++r) {
    const float* const from = part.v + r * part.row_stride + head * head_dim;
    std::byte* const row = to + (part.at + r) * head_dim * kBytes;
    for (std::size_t d = 0; d < head_dim; d += kLanes) {
      narrow<kType>(from + d, std::min(kLanes, head_dim - d), row + d * kBytes);
    }
  }
}

// K of one head, transposed: kLanes dimensions of all rows are narrowed to a small square, then leave by its columns.
template <Dtype kType>
void write_keys(const BlockRows& part, std::size_t head, std::size_t head_dim, std::size_t block_tokens,
                std::byte* to) {
  using Stored = std::conditional_t<kType == Dtype::kF32, std::uint32_t, std::uint16_t>;
  constexpr std::size_t kSide = 16;
  Stored square[kSide][kLanes];
  for (std::size_t first = 0; first < part.rows; first += kSide) {
    const std::size_t rows = std::min(kSide, part.rows - first);
    for (std::size_t d = 0; d < head_dim; d += kLanes) {
      const std::size_t dims = std::min(kLanes, head_dim - d);
      for (std::size_t r = 0; r < rows; ++r) {
        const float* const from = part.k + (first + r) * part.row_stride + head * head_dim + d;
        narrow<kType>(from, dims, reinterpret_cast<std::byte*>(square[r]));
      }
      for (std::size_t i = 0; i < dims; ++i) {
        std::byte* const run = to + ((d + i) * block_tokens + part.at + first) * sizeof(Stored);
        for (std::size_t r = 0; r < rows; ++r) std::memcpy(run + r * sizeof(Stored), &square[r][i], sizeof(Stored));
      }
    }
  }
}

template <Dtype kType>
void write_typed(const PagedGeometry& geometry, const BlockRows& part) {
  const std::size_t head_bytes = geometry.head_dim * geometry.block_tokens * dtype_bytes(kType);
  for (std::size_t head = 0; head < geometry.kv_heads; ++head) {
    std::byte* const keys = part.span + head * head_bytes;
    write_keys<kType>(part, head, geometry.head_dim, geometry.block_tokens, keys);
    write_values<kType>(part, head, geometry.head_dim, keys + geometry.kv_heads * head_bytes);
  }
}

void write_block(const PagedGeometry& geometry, const BlockRows& part) {
  switch (geometry.dtype) {
    case Dtype::kF32: return write_typed<Dtype::kF32>(geometry, part);
    case Dtype::kBf16: return write_typed<Dtype::kBf16>(geometry, part);
    case Dtype::kF16: return write_typed<Dtype::kF16>(geometry, part);
  }
}

}  // namespace nmc::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace nmc::kernels {
namespace {
HWY_EXPORT(write_block);
}  // namespace

void write_kv(const PagedGeometry& geometry, const float* k, const float* v, std::size_t row_stride, std::size_t rows,
              std::size_t start, std::byte* const* blocks) {
  NMC_REQUIRE(geometry.block_tokens > 0);
  for (std::size_t done = 0; done < rows;) {
    const std::size_t position = start + done;
    const std::size_t at = position % geometry.block_tokens;
    const std::size_t count = std::min(rows - done, geometry.block_tokens - at);
    HWY_DYNAMIC_DISPATCH(write_block)
    (geometry,
     {k + done * row_stride, v + done * row_stride, row_stride, count, at, blocks[position / geometry.block_tokens]});
    done += count;
  }
}

}  // namespace nmc::kernels
#endif  // HWY_ONCE
