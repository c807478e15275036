#include "kernels/targets.h"
// Compiled once for each instruction set.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/attention.cc"
#include "hwy/foreach_target.h"
//
#include <algorithm>
#include <limits>

#include "base/check.h"
#include "kernels/attention_plan.h"
#include "kernels/kernels.h"
#include "kernels/product-inl.h"
#include "kernels/scratch.h"

HWY_BEFORE_NAMESPACE();
namespace nmc::kernels::HWY_NAMESPACE {

// ---- Staging: K and V of one head over one unit, widened, in the shape the products want --------------------------

// Positions [begin, end) of the unit that starts at `unit`. K is widened to the end of each block, since whole vectors are
// faster: what lies past the last position is a score that nobody looks at.
template <Dtype kType>
void stage_unit(const AttentionItem& item, std::size_t unit, std::size_t begin, std::size_t end,
                const AttentionBuffers& buffers) {
  constexpr std::size_t kBytes = dtype_bytes(kType);
  const PagedGeometry& geometry = item.geometry;
  const std::size_t dim = geometry.head_dim;
  const std::size_t tokens = geometry.block_tokens;
  const std::size_t head_bytes = dim * tokens * kBytes;
  for (std::size_t position = begin; position < end;) {
    const std::size_t at = position % tokens;
    const std::size_t count = std::min(tokens - at, end - position);
    const std::size_t column = position - unit;
    const std::size_t scored = std::min(tokens - at, kUnitTokens - column);
    const std::byte* const keys = item.task.blocks[position / tokens] + item.kv_head * head_bytes;
    const std::byte* const values = keys + geometry.kv_heads * head_bytes;
    for (std::size_t d = 0; d < dim; ++d) {
      widen<kType>(keys + (d * tokens + at) * kBytes, scored, buffers.keys + d * kUnitTokens + column);
    }
    for (std::size_t t = 0; t < count; ++t) {
      widen<kType>(values + (at + t) * dim * kBytes, dim, buffers.values + (column + t) * buffers.padded_dim);
    }
    position += count;
  }
}

void stage(const AttentionItem& item, std::size_t unit, std::size_t begin, std::size_t end,
           const AttentionBuffers& buffers) {
  switch (item.geometry.dtype) {
    case Dtype::kF32: return stage_unit<Dtype::kF32>(item, unit, begin, end, buffers);
    case Dtype::kBf16: return stage_unit<Dtype::kBf16>(item, unit, begin, end, buffers);
    case Dtype::kF16: return stage_unit<Dtype::kF16>(item, unit, begin, end, buffers);
  }
}

// ---- Softmax of one query over one unit -----------------------------------------------------------------------------

struct UnitSum {
  float max;
  float sum;
};

// Turns scores [range.begin, range.end) to exp(score - max), everything else in the touched vectors to 0.
HWY_INLINE UnitSum softmax_unit(float* scores, TokenRange range) {
  const F32 f32;
  const std::size_t first = range.begin / kLanes * kLanes;
  const auto lower = hn::Set(f32, static_cast<float>(range.begin));
  const auto upper = hn::Set(f32, static_cast<float>(range.end));
  const auto lowest = hn::Set(f32, -std::numeric_limits<float>::infinity());
  auto max = lowest;
  for (std::size_t t = first; t < range.end; t += kLanes) {
    const auto index = hn::Iota(f32, static_cast<float>(t));
    const auto inside = hn::And(hn::Ge(index, lower), hn::Lt(index, upper));
    const auto score = hn::IfThenElse(inside, hn::Load(f32, scores + t), lowest);
    hn::Store(score, f32, scores + t);
    max = hn::Max(max, score);
  }
  max = hn::MaxOfLanes(f32, max);
  auto sum = hn::Zero(f32);
  for (std::size_t t = first; t < range.end; t += kLanes) {
    const auto index = hn::Iota(f32, static_cast<float>(t));
    const auto inside = hn::And(hn::Ge(index, lower), hn::Lt(index, upper));
    const auto power = hn::IfThenElseZero(inside, exp_f32(hn::Sub(hn::Load(f32, scores + t), max)));
    hn::Store(power, f32, scores + t);
    sum = hn::Add(sum, power);
  }
  return {hn::GetLane(max), hn::GetLane(hn::SumOfLanes(f32, sum))};
}

HWY_INLINE float exp_of(float x) { return hn::GetLane(exp_f32(hn::Set(F32(), x))); }

// Joins a unit's result (max, sum, weighted values) to what the query has so far.
HWY_INLINE void merge_unit(const UnitSum& unit, const float* values, std::size_t padded_dim, QueryState& state, float* out) {
  const F32 f32;
  const float max = unit.max > state.max ? unit.max : state.max;
  const auto kept = hn::Set(f32, exp_of(state.max - max));
  const auto added = hn::Set(f32, exp_of(unit.max - max));
  const auto sum = hn::MulAdd(hn::Set(f32, unit.sum), added, hn::Mul(hn::Set(f32, state.sum), kept));
  state = {max, hn::GetLane(sum)};
  for (std::size_t d = 0; d < padded_dim; d += kLanes) {
    const auto old = hn::Mul(hn::Load(f32, out + d), kept);
    hn::Store(hn::MulAdd(hn::Load(f32, values + d), added, old), f32, out + d);
  }
}

// ---- One tile of queries over one unit ------------------------------------------------------------------------------

// values[r] += p[r][range] * V[range], one chain over the tokens.
template <std::size_t kRows>
HWY_INLINE void weigh_values(const float* p, TokenRange range, const AttentionBuffers& buffers, float* weighed, bool resume) {
  if (range.begin >= range.end) return;
  const std::size_t stride = buffers.padded_dim;
  for (std::size_t d = 0; d < stride; d += 2 * kLanes) {
    product_tile<kRows>(StridedRows<kUnitTokens>{p + range.begin, kUnitTokens},
                        DenseStrip{buffers.values + range.begin * stride + d, stride}, range.end - range.begin, weighed + d,
                        stride, resume, FetchNothing());
  }
}

// `ranges` are the tokens of the unit that each query may see. They grow along the tile, so the tile as a whole works on
// what all share, and each query alone on what it has before and after: no token outside its range ever enters.
template <std::size_t kRows>
void tile_over_unit(const AttentionBuffers& buffers, std::size_t head_dim, std::size_t first_query, const TokenRange* ranges) {
  const float* const queries = buffers.queries + first_query * head_dim;
  TokenRange all = {kUnitTokens, 0};
  TokenRange shared = {0, kUnitTokens};
  for (std::size_t r = 0; r < kRows; ++r) {
    if (ranges[r].empty()) continue;
    all = {std::min(all.begin, ranges[r].begin), std::max(all.end, ranges[r].end)};
    shared = {std::max(shared.begin, ranges[r].begin), std::min(shared.end, ranges[r].end)};
  }
  if (all.empty()) return;
  for (std::size_t t = all.begin / (2 * kLanes) * (2 * kLanes); t < all.end; t += 2 * kLanes) {
    product_tile<kRows>(PackedRows<kRows>{queries}, DenseStrip{buffers.keys + t, kUnitTokens}, head_dim, buffers.scores + t,
                        kUnitTokens, false, FetchNothing());
  }
  UnitSum sums[kRows] = {};
  for (std::size_t r = 0; r < kRows; ++r) {
    if (!ranges[r].empty()) sums[r] = softmax_unit(buffers.scores + r * kUnitTokens, ranges[r]);
  }
  const std::size_t stride = buffers.padded_dim;
  if (shared.empty()) shared = {kUnitTokens, kUnitTokens};
  const bool ragged = all.begin < shared.begin;
  if (ragged) std::fill_n(buffers.weighed, kRows * stride, 0.0f);
  for (std::size_t r = 0; ragged && r < kRows; ++r) {
    const TokenRange before = {ranges[r].begin, std::min(ranges[r].end, shared.begin)};
    weigh_values<1>(buffers.scores + r * kUnitTokens, before, buffers, buffers.weighed + r * stride, true);
  }
  weigh_values<kRows>(buffers.scores, shared, buffers, buffers.weighed, ragged);
  for (std::size_t r = 0; r < kRows; ++r) {
    if (ranges[r].empty()) continue;
    const TokenRange after = {std::max(shared.end, ranges[r].begin), ranges[r].end};
    weigh_values<1>(buffers.scores + r * kUnitTokens, after, buffers, buffers.weighed + r * stride, true);
    const std::size_t query = first_query + r;
    merge_unit(sums[r], buffers.weighed + r * stride, stride, buffers.states[query], buffers.out + query * stride);
  }
}

using TileOverUnit = void (*)(const AttentionBuffers&, std::size_t, std::size_t, const TokenRange*);

template <std::size_t... kRow>
TileOverUnit tile_function(std::size_t rows, std::index_sequence<kRow...>) {
  static constexpr TileOverUnit kFunctions[] = {&tile_over_unit<kRow + 1>...};
  return kFunctions[rows - 1];
}

// ---- All of an item -------------------------------------------------------------------------------------------------

// Scaled queries, tile after tile, each [head_dim][rows of the tile].
void pack_queries(const AttentionItem& item, const RowTiles& tiles, float* to) {
  const std::size_t dim = item.geometry.head_dim;
  for (std::size_t tile = 0; tile < tiles.tiles; ++tile) {
    const std::size_t rows = tiles.rows_of(tile);
    const std::size_t start = tiles.start_of(tile);
    for (std::size_t r = 0; r < rows; ++r) {
      const float* const from = item.query(start + r);
      for (std::size_t d = 0; d < dim; ++d) to[start * dim + d * rows + r] = from[d] * item.scale;
    }
  }
}

void write_out(const AttentionItem& item, const AttentionBuffers& buffers) {
  const F32 f32;
  const std::size_t dim = item.geometry.head_dim;
  for (std::size_t query = 0; query < item.queries(); ++query) {
    const auto sum = hn::Set(f32, buffers.states[query].sum);
    const float* const from = buffers.out + query * buffers.padded_dim;
    float* const to = item.result(query);
    std::size_t d = 0;
    for (; d + kLanes <= dim; d += kLanes) hn::StoreU(hn::Div(hn::Load(f32, from + d), sum), f32, to + d);
    if (d < dim) store_part(hn::Div(hn::Load(f32, from + d), sum), to + d, dim - d);
  }
}

void attend(const AttentionItem& item) {
  static thread_local Scratch scratch;
  const std::size_t queries = item.queries();
  const RowTiles tiles(queries, kTileRows);
  const AttentionBuffers buffers(scratch, queries, item.geometry.head_dim, kTileRows);
  pack_queries(item, tiles, buffers.queries);
  std::fill_n(buffers.out, queries * buffers.padded_dim, 0.0f);
  std::fill_n(buffers.states, queries, QueryState{-std::numeric_limits<float>::infinity(), 0.0f});

  const std::size_t begin = item.visible(0).begin;
  const std::size_t end = item.visible(queries - 1).end;
  for (std::size_t unit = begin / kUnitTokens * kUnitTokens; unit < end; unit += kUnitTokens) {
    stage(item, unit, std::max(unit, begin), std::min(unit + kUnitTokens, end), buffers);
    for (std::size_t tile = 0; tile < tiles.tiles; ++tile) {
      const std::size_t rows = tiles.rows_of(tile);
      const std::size_t start = tiles.start_of(tile);
      TokenRange ranges[kTileRows];
      for (std::size_t r = 0; r < rows; ++r) ranges[r] = item.visible(start + r).within(unit);
      tile_function(rows, std::make_index_sequence<kTileRows>())(buffers, item.geometry.head_dim, start, ranges);
    }
  }
  write_out(item, buffers);
}

}  // namespace nmc::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace nmc::kernels {
namespace {

HWY_EXPORT(attend);

// Queries that share one staging of K and V. More cost less; fewer balance the threads.
constexpr std::size_t kQueriesPerItem = 48;

void check(const PagedGeometry& geometry, std::span<const AttentionTask> tasks) {
  NMC_REQUIRE(geometry.kv_heads > 0 && geometry.heads % geometry.kv_heads == 0, "heads={} kv_heads={}", geometry.heads,
              geometry.kv_heads);
  NMC_REQUIRE(geometry.head_dim > 0 && geometry.block_tokens > 0, "head_dim={} block_tokens={}", geometry.head_dim,
              geometry.block_tokens);
  for (const AttentionTask& task : tasks) {
    NMC_REQUIRE(task.rows == 0 || (task.q != nullptr && task.out != nullptr && task.blocks != nullptr));
  }
}

}  // namespace

void paged_attention(ThreadPool& pool, const PagedGeometry& geometry, std::span<const AttentionTask> tasks, float scale,
                     std::size_t window) {
  check(geometry, tasks);
  const std::size_t group = geometry.heads / geometry.kv_heads;
  const std::size_t item_rows = std::max<std::size_t>(1, kQueriesPerItem / std::max<std::size_t>(1, group));
  const auto pieces = [&](const AttentionTask& task) { return (task.rows + item_rows - 1) / item_rows; };
  std::size_t items = 0;
  for (const AttentionTask& task : tasks) items += pieces(task) * geometry.kv_heads;

  const auto attend_item = [&](std::size_t index) {
    std::size_t left = index;
    auto task = tasks.begin();
    for (; left >= pieces(*task) * geometry.kv_heads; ++task) left -= pieces(*task) * geometry.kv_heads;
    // Later rows see more: begin with them, so that the threads end together.
    const std::size_t piece = pieces(*task) - 1 - left / geometry.kv_heads;
    const std::size_t first_row = piece * item_rows;
    const std::size_t rows = std::min(item_rows, task->rows - first_row);
    HWY_DYNAMIC_DISPATCH(attend)({geometry, *task, left % geometry.kv_heads, first_row, rows, scale, window});
  };
  pool.parallel_for(items, 1, [&](std::size_t begin, std::size_t end, int) {
    for (std::size_t index = begin; index < end; ++index) attend_item(index);
  });
}

}  // namespace nmc::kernels
#endif  // HWY_ONCE
