#include "kernels/targets.h"
// Compiled once for each instruction set.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/matmul.cc"
#include "hwy/foreach_target.h"
//
#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "kernels/kernels.h"
#include "kernels/matmul_plan.h"
#include "kernels/product-inl.h"
#include "kernels/scratch.h"

HWY_BEFORE_NAMESPACE();
namespace nmc::kernels::HWY_NAMESPACE {

// ---- Few rows: bound by reading w -----------------------------------------------------------------------------------

// Strips side by side for 1, 2, 3 and 4 rows: as the registers allow.
#if HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128
inline constexpr std::size_t kWide[] = {2, 1};
#elif HWY_CAP_GE512 || HWY_ARCH_ARM
inline constexpr std::size_t kWide[] = {4, 4, 4, 3};
#else
inline constexpr std::size_t kWide[] = {4, 2, 2};
#endif
static_assert(std::size(kWide) >= kDirectRows);

// Strips [begin, end), `kCount` at a time and what is left by halves of that.
template <std::size_t kRows, std::size_t kCount, Dtype kType>
void direct_strips(const ProductPart& part, std::size_t begin, std::size_t end, float* y, std::size_t y_stride) {
  const StridedRows<0> x{part.x, part.w.k};
  for (; begin + kCount <= end; begin += kCount) {
    product_wide<kRows, kCount, kType>(x, part.w.data, part.panel_bytes(), begin, part.w.k, y, y_stride);
  }
  if constexpr (kCount > 1) direct_strips<kRows, kCount / 2, kType>(part, begin, end, y, y_stride);
}

template <std::size_t kRows, Dtype kType>
void direct_rows(const ProductPart& part, std::size_t begin, std::size_t end) {
  constexpr std::size_t kCount = kWide[kRows - 1];
  const std::size_t whole = std::min(end, part.w.n / kPanelColumns);
  direct_strips<kRows, kCount, kType>(part, begin * kStrips, whole * kStrips, part.y, part.y_stride);
  if (whole == end) return;
  // The last panel has columns that y doesn't.
  float edge[kRows * kPanelColumns];
  ProductPart last = part;
  last.w.data += whole * part.panel_bytes();
  direct_strips<kRows, kCount, kType>(last, 0, kStrips, edge, kPanelColumns);
  const std::size_t columns = part.w.n - whole * kPanelColumns;
  for (std::size_t r = 0; r < kRows; ++r) {
    std::memcpy(part.y + r * part.y_stride + whole * kPanelColumns, edge + r * kPanelColumns, columns * sizeof(float));
  }
}

template <Dtype kType, std::size_t... kRow>
void direct_typed(const ProductPart& part, std::size_t begin, std::size_t end, std::index_sequence<kRow...>) {
  using Function = void (*)(const ProductPart&, std::size_t, std::size_t);
  static constexpr Function kFunctions[] = {&direct_rows<kRow + 1, kType>...};
  kFunctions[part.rows - 1](part, begin, end);
}

void direct_panels(const ProductPart& part, std::size_t begin, std::size_t end) {
  const std::make_index_sequence<kDirectRows> rows;
  switch (part.w.dtype) {
    case Dtype::kF32: return direct_typed<Dtype::kF32>(part, begin, end, rows);
    case Dtype::kBf16: return direct_typed<Dtype::kBf16>(part, begin, end, rows);
    case Dtype::kF16: return direct_typed<Dtype::kF16>(part, begin, end, rows);
  }
}

// ---- More rows: bound by multiply-adds ------------------------------------------------------------------------------

// Several tiles pass over a panel: k runs in chunks, so that a chunk of w, and its part of x, stay in the first two
// caches meanwhile. From kTilesToWiden tiles on it pays to widen the chunk once for all of them.
inline constexpr std::size_t kTilesToWiden = 4;
inline constexpr std::size_t kChunk = 512;
inline constexpr std::size_t kWideChunk = 256;

inline std::size_t chunk_for(const RowTiles& tiles, std::size_t k) {
  if (tiles.tiles == 1) return k;
  return tiles.tiles < kTilesToWiden ? kChunk : kWideChunk;
}

template <std::size_t kRows, Dtype kType>
void tile_of(const float* x, const std::byte* chunk, std::size_t depth, float* y, std::size_t y_stride, bool resume,
             FetchAhead fetch) {
  for (std::size_t strip = 0; strip < kStrips; ++strip) {
    product_tile<kRows>(PackedRows<kRows>{x}, PanelStrip<kType>::at(chunk, strip), depth, y + strip * kLanes, y_stride,
                        resume, fetch);
  }
}

// All tiles of rows over one chunk of one panel.
template <Dtype kType, std::size_t... kRow>
void tiles_over(const RowTiles& tiles, const float* x, std::size_t k, std::size_t k0, const std::byte* chunk,
                std::size_t depth, float* y, std::size_t y_stride, FetchAhead fetch, std::index_sequence<kRow...>) {
  using Function = void (*)(const float*, const std::byte*, std::size_t, float*, std::size_t, bool, FetchAhead);
  static constexpr Function kFunctions[] = {&tile_of<kRow + 1, kType>...};
  for (std::size_t tile = 0; tile < tiles.tiles; ++tile) {
    const std::size_t rows = tiles.rows_of(tile);
    const std::size_t start = tiles.start_of(tile);
    kFunctions[rows - 1](x + start * k + k0 * rows, chunk, depth, y + start * y_stride, y_stride, k0 > 0, fetch);
    fetch.data += fetch.step * depth;
  }
}

template <Dtype kType>
void widen_chunk(const std::byte* chunk, std::size_t depth, float* to) {
  for (std::size_t strip = 0; strip < kStrips; ++strip) {
    const auto from = PanelStrip<kType>::at(chunk, strip);
    for (std::size_t k = 0; k < depth; ++k) {
      VF first, second;
      from.load(k, first, second);
      float* const row = to + k * kPanelColumns + strip * kLanes;
      hn::Store(first, F32(), row);
      hn::Store(second, F32(), row + from.kSecond);
    }
  }
}

template <Dtype kType>
void tiled_typed(const ProductPart& part, std::size_t begin, std::size_t end) {
  constexpr std::size_t kRowBytes = PanelStrip<kType>::kRowBytes;
  const std::make_index_sequence<kTileRows> rows;
  const RowTiles tiles(part.rows, kTileRows);
  const std::size_t k = part.w.k;
  const std::size_t whole = part.w.n / kPanelColumns;

  static thread_local Scratch scratch;
  float* const wide = scratch.reserve((kWideChunk + part.rows) * kPanelColumns);
  float* const edge = wide + kWideChunk * kPanelColumns;  // the last panel's y, when that has columns too many

  const std::size_t chunk_rows = chunk_for(tiles, k);
  for (std::size_t k0 = 0; k0 < k; k0 += chunk_rows) {
    const std::size_t depth = std::min(chunk_rows, k - k0);
    for (std::size_t panel = begin; panel < end; ++panel) {
      const std::byte* const chunk = part.w.data + panel * part.panel_bytes() + k0 * kRowBytes;
      float* const y = panel < whole ? part.y + panel * kPanelColumns : edge;
      const std::size_t y_stride = panel < whole ? part.y_stride : kPanelColumns;
      // One tile fetches what it will want itself; several share the fetching of the next panel's chunk.
      const FetchAhead near{chunk + 64 * kRowBytes, kRowBytes};
      const FetchAhead next{chunk + part.panel_bytes(), kRowBytes / tiles.tiles + 1};
      const FetchAhead fetch = tiles.tiles == 1 ? near : next;
      if (kType == Dtype::kF32 || tiles.tiles < kTilesToWiden) {
        tiles_over<kType>(tiles, part.packed_x, k, k0, chunk, depth, y, y_stride, fetch, rows);
      } else {
        widen_chunk<kType>(chunk, depth, wide);
        const auto* const wide_chunk = reinterpret_cast<const std::byte*>(wide);
        tiles_over<Dtype::kF32>(tiles, part.packed_x, k, k0, wide_chunk, depth, y, y_stride, fetch, rows);
      }
    }
  }
  if (end <= whole) return;
  const std::size_t columns = part.w.n - whole * kPanelColumns;
  for (std::size_t r = 0; r < part.rows; ++r) {
    std::memcpy(part.y + r * part.y_stride + whole * kPanelColumns, edge + r * kPanelColumns, columns * sizeof(float));
  }
}

void tiled_panels(const ProductPart& part, std::size_t begin, std::size_t end) {
  switch (part.w.dtype) {
    case Dtype::kF32: return tiled_typed<Dtype::kF32>(part, begin, end);
    case Dtype::kBf16: return tiled_typed<Dtype::kBf16>(part, begin, end);
    case Dtype::kF16: return tiled_typed<Dtype::kF16>(part, begin, end);
  }
}

TileLimits tile_limits() { return {kDirectRows, std::max<std::size_t>(1, kWide[0] / kStrips), kTileRows}; }

}  // namespace nmc::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace nmc::kernels {
namespace {

HWY_EXPORT(direct_panels);
HWY_EXPORT(tiled_panels);
HWY_EXPORT(tile_limits);

// Rows that share one pass over w. Bounds the packed copy of x, and is enough for w to cost nothing.
constexpr std::size_t kRowsPerPass = 240;

// Panels a thread takes at a time: few enough for all threads to end together.
std::size_t panels_at_a_time(std::size_t panels, std::size_t most, int threads) {
  const std::size_t fair = panels / (static_cast<std::size_t>(threads) * 4);
  return std::clamp<std::size_t>(fair, 1, most);
}

void direct(ThreadPool& pool, const ProductPart& part, const TileLimits& limits) {
  const std::size_t most = limits.direct_panels;
  pool.parallel_for(part.panels(), panels_at_a_time(part.panels(), most, pool.size()),
                    [&](std::size_t begin, std::size_t end, int) {
                      HWY_DYNAMIC_DISPATCH(direct_panels)(part, begin, end);
                    });
}

void pack_tile(const float* x, std::size_t rows, std::size_t k, float* to) {
  for (std::size_t r = 0; r < rows; ++r) {
    for (std::size_t i = 0; i < k; ++i) to[i * rows + r] = x[r * k + i];
  }
}

void tiled(ThreadPool& pool, ProductPart part, const TileLimits& limits) {
  static thread_local Scratch scratch;
  const RowTiles tiles(part.rows, limits.tile_rows);
  float* const packed = scratch.reserve(part.rows * part.w.k);
  pool.parallel_for(tiles.tiles, 1, [&](std::size_t begin, std::size_t end, int) {
    for (std::size_t tile = begin; tile < end; ++tile) {
      const std::size_t offset = tiles.start_of(tile) * part.w.k;
      pack_tile(part.x + offset, tiles.rows_of(tile), part.w.k, packed + offset);
    }
  });
  part.packed_x = packed;
  pool.parallel_for(part.panels(), panels_at_a_time(part.panels(), 8, pool.size()),
                    [&](std::size_t begin, std::size_t end, int) {
                      HWY_DYNAMIC_DISPATCH(tiled_panels)(part, begin, end);
                    });
}

}  // namespace

void matmul(ThreadPool& pool, const float* x, std::size_t rows, const PackedMatrix& w, float* y, std::size_t y_stride) {
  NMC_REQUIRE(w.n == 0 || y_stride >= w.n || rows <= 1, "y_stride={} n={}", y_stride, w.n);
  if (rows == 0 || w.n == 0) return;
  if (w.k == 0) {
    for (std::size_t r = 0; r < rows; ++r) std::fill_n(y + r * y_stride, w.n, 0.0f);
    return;
  }
  const TileLimits limits = HWY_DYNAMIC_DISPATCH(tile_limits)();
  if (rows <= limits.direct_rows) return direct(pool, {x, rows, w, y, y_stride}, limits);
  const RowTiles passes(rows, kRowsPerPass);
  for (std::size_t pass = 0; pass < passes.tiles; ++pass) {
    const std::size_t start = passes.start_of(pass);
    tiled(pool, {x + start * w.k, passes.rows_of(pass), w, y + start * y_stride, y_stride}, limits);
  }
}

std::string matmul_kernel_name(std::size_t rows, Dtype dtype) {
  const TileLimits limits = HWY_DYNAMIC_DISPATCH(tile_limits)();
  std::string level = instruction_level();
  std::transform(level.begin(), level.end(), level.begin(), [](unsigned char c) { return std::tolower(c); });
  if (rows == 0) return "none";
  if (rows <= limits.direct_rows) return fmt::format("{}_{}_direct{}", level, dtype_name(dtype), rows);
  const RowTiles passes(rows, kRowsPerPass);
  const RowTiles tiles(passes.rows_of(0), limits.tile_rows);
  return fmt::format("{}_{}_tile{}x{}{}", level, dtype_name(dtype), tiles.rows_of(0), tiles.tiles,
                     passes.tiles > 1 ? fmt::format("x{}", passes.tiles) : "");
}

}  // namespace nmc::kernels
#endif  // HWY_ONCE
