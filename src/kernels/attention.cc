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

// ---- Where K and V of one head come from ----------------------------------------------------------------------------
//
// Either from the cache as it lies, widened in registers, or staged: widened once into a thread's memory for several
// tiles of queries, and for shapes that don't fill vectors. Both feed the same chains of multiply-adds, so the bits
// agree.

template <Dtype kType>
struct PagedHead {
  static constexpr std::size_t kBytes = dtype_bytes(kType);
  const AttentionItem& item;

  std::size_t tokens() const { return item.geometry.block_tokens; }
  std::size_t dim() const { return item.geometry.head_dim; }
  const std::byte* keys(std::size_t position) const {  // of the block of `position`, at that column
    const std::size_t head = item.kv_head * dim() * tokens();
    return item.task.blocks[position / tokens()] + (head + position % tokens()) * kBytes;
  }
  const std::byte* values(std::size_t position) const {  // row of `position`
    const std::size_t row = (item.geometry.kv_heads + item.kv_head) * tokens() + position % tokens();
    return item.task.blocks[position / tokens()] + row * dim() * kBytes;
  }
};

// Two runs of kLanes tokens or dimensions in the cache's type.
template <Dtype kType>
struct CacheStrip {
  static constexpr std::size_t kSecond = kLanes;
  const std::byte* first_data;
  const std::byte* second_data;
  std::size_t stride;  // bytes

  HWY_INLINE void load(std::size_t k, VF& first, VF& second) const {
    first = load_widened<kType>(first_data + k * stride);
    second = load_widened<kType>(second_data + k * stride);
  }
};

struct FetchTwo {
  const std::byte* a;
  const std::byte* b;
  std::size_t step;
  HWY_INLINE void operator()(std::size_t k) const {
    hwy::Prefetch(a + k * step);
    hwy::Prefetch(b + k * step);
  }
};

// K and V of one unit straight from the cache.
template <Dtype kType>
class CacheUnit {
 public:
  static bool fits(const PagedGeometry& geometry) {
    return geometry.block_tokens % kLanes == 0 && geometry.head_dim % (2 * kLanes) == 0;
  }
  // `sweep`: the caller goes through the heads of a block before the next block.
  CacheUnit(const AttentionItem& item, std::size_t unit, std::size_t end, bool sweep)
      : head_{item}, unit_(unit), end_(end), sweep_(sweep) {}

  template <std::size_t kRows>
  HWY_INLINE void score(const PackedRows<kRows> queries, std::size_t t, float* scores) const {
    const std::size_t first = unit_ + t;
    const CacheStrip<kType> strip{head_.keys(first), head_.keys(known(first + kLanes, first)), row_bytes()};
    product_tile<kRows>(queries, strip, head_.dim(), scores + t, kUnitTokens, false, after_keys(first));
  }

  // weighed[r] += p[r][range] * V[range], one chain over the tokens.
  template <std::size_t kRows>
  HWY_INLINE void weigh(const float* p, TokenRange range, float* weighed, std::size_t padded_dim, bool resume) const {
    for (std::size_t t = range.begin; t < range.end;) {
      const std::size_t position = unit_ + t;
      const std::size_t count = std::min(range.end - t, head_.tokens() - position % head_.tokens());
      FetchAhead fetch{after_values(position), 2 * kLanes * head_.kBytes};
      for (std::size_t d = 0; d < head_.dim(); d += 2 * kLanes) {
        const std::byte* const row = head_.values(position) + d * head_.kBytes;
        const CacheStrip<kType> strip{row, row + kLanes * head_.kBytes, head_.dim() * head_.kBytes};
        product_tile<kRows>(StridedRows<kUnitTokens>{p + t, kUnitTokens}, strip, count, weighed + d, padded_dim, resume,
                            fetch);
        fetch.data += fetch.step * head_.tokens();
      }
      resume = true;
      t += count;
    }
  }

 private:
  // `position`, or `instead` where the table of blocks may have ended.
  std::size_t known(std::size_t position, std::size_t instead) const { return position < end_ ? position : instead; }
  std::size_t row_bytes() const { return head_.tokens() * head_.kBytes; }

  std::size_t head_bytes() const { return head_.dim() * row_bytes(); }

  // What is wanted soon: in a sweep the next head, which follows in memory. Else a little ahead only, since blocks of
  // one head lie at strides that share few sets of a cache. While one pair of runs of K is scored, the next pair, and
  // after the last the first two blocks of V.
  FetchTwo after_keys(std::size_t first) const {
    if (sweep_) {
      const std::size_t second = known(first + kLanes, first);
      return {head_.keys(first) + head_bytes(), head_.keys(second) + head_bytes(), row_bytes()};
    }
    const std::size_t next = first + 2 * kLanes;
    if (next < unit_ + kUnitTokens && next < end_) {
      return {head_.keys(next), head_.keys(known(next + kLanes, next)), row_bytes()};
    }
    return {head_.values(unit_), head_.values(known(unit_ + head_.tokens(), unit_)), row_bytes()};
  }
  // While a block of V is weighed, the second next, and after the last two the first K of the next unit.
  const std::byte* after_values(std::size_t position) const {
    const std::size_t block = position - position % head_.tokens();
    if (sweep_) return head_.values(block) + head_bytes();
    const std::size_t next = known(block + 2 * head_.tokens(), block);
    return next < unit_ + kUnitTokens ? head_.values(next) : head_.keys(next);
  }

 private:
  PagedHead<kType> head_;
  std::size_t unit_;
  std::size_t end_;
  bool sweep_;
};

// K and V of one unit, staged.
class StagedUnit {
 public:
  StagedUnit(const AttentionBuffers& buffers, std::size_t dim) : buffers_(buffers), dim_(dim) {}

  template <std::size_t kRows>
  HWY_INLINE void score(const PackedRows<kRows> queries, std::size_t t, float* scores) const {
    product_tile<kRows>(queries, DenseStrip{key(t), kKeyColumns}, dim_, scores + t, kUnitTokens, false, FetchNothing());
  }

  template <std::size_t kRows>
  HWY_INLINE void weigh(const float* p, TokenRange range, float* weighed, std::size_t padded_dim, bool resume) const {
    if (range.empty()) return;
    for (std::size_t d = 0; d < padded_dim; d += 2 * kLanes) {
      product_tile<kRows>(StridedRows<kUnitTokens>{p + range.begin, kUnitTokens},
                          DenseStrip{buffers_.values + range.begin * padded_dim + d, padded_dim},
                          range.end - range.begin, weighed + d, padded_dim, resume, FetchNothing());
    }
  }

  // Positions [begin, end) of the unit that starts at `unit`. K is widened to the end of each block, since whole
  // vectors are faster: what lies past the last position is a score that nobody looks at.
  template <Dtype kType>
  void fill(const PagedHead<kType>& head, std::size_t unit, std::size_t begin, std::size_t end) {
    for (std::size_t position = begin; position < end;) {
      const std::size_t column = position - unit;
      const std::size_t left = std::min(head.tokens() - position % head.tokens(), kKeyColumns - column % kKeyColumns);
      for (std::size_t d = 0; d < dim_; ++d) {
        widen<kType>(head.keys(position) + d * head.tokens() * head.kBytes, left, key(column) + d * kKeyColumns);
      }
      const std::size_t count = std::min(left, end - position);
      for (std::size_t t = 0; t < count; ++t) {
        widen<kType>(head.values(position + t), dim_, buffers_.values + (column + t) * buffers_.padded_dim);
      }
      position += count;
    }
  }

 private:
  float* key(std::size_t t) const { return buffers_.keys + t / kKeyColumns * kKeyColumns * dim_ + t % kKeyColumns; }

  const AttentionBuffers& buffers_;
  std::size_t dim_;
};

// ---- Softmax of one query over one unit -----------------------------------------------------------------------------

struct UnitSum {
  float max;
  float sum;
};

// Scores [t, t + kLanes), `outside` in the lanes that are not in the range.
HWY_INLINE VF masked(const float* scores, std::size_t t, TokenRange range, VF outside) {
  const F32 f32;
  const auto score = hn::Load(f32, scores + t);
  if (range.begin <= t && t + kLanes <= range.end) return score;
  const auto index = hn::Iota(f32, static_cast<float>(t));
  const auto lower = hn::Set(f32, static_cast<float>(range.begin));
  const auto upper = hn::Set(f32, static_cast<float>(range.end));
  return hn::IfThenElse(hn::And(hn::Ge(index, lower), hn::Lt(index, upper)), score, outside);
}

// Turns scores [range.begin, range.end) to exp(score - max).
HWY_INLINE UnitSum softmax_unit(float* scores, TokenRange range) {
  const F32 f32;
  const std::size_t first = range.begin / kLanes * kLanes;
  const auto lowest = hn::Set(f32, -std::numeric_limits<float>::infinity());
  auto max = lowest;
  for (std::size_t t = first; t < range.end; t += kLanes) max = hn::Max(max, masked(scores, t, range, lowest));
  max = hn::MaxOfLanes(f32, max);
  auto sum = hn::Zero(f32);
  for (std::size_t t = first; t < range.end; t += kLanes) {
    hn::Store(exp_f32(hn::Sub(hn::Load(f32, scores + t), max)), f32, scores + t);
    sum = hn::Add(sum, masked(scores, t, range, hn::Zero(f32)));
  }
  return {hn::GetLane(max), hn::GetLane(hn::SumOfLanes(f32, sum))};
}

HWY_INLINE float exp_of(float x) { return hn::GetLane(exp_f32(hn::Set(F32(), x))); }

// Joins a unit's result (max, sum, weighted values) to what the query has so far.
HWY_INLINE void merge_unit(const UnitSum& unit, const float* values, std::size_t padded_dim, QueryState& state,
                           float* out) {
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

// `ranges` are the tokens of the unit that each query may see. They grow along the tile, so the tile as a whole works
// on what all share, and each query alone on what it has before and after: no token outside its range ever enters.
template <std::size_t kRows, typename Unit>
void tile_over_unit(const Unit& unit, const AttentionBuffers& buffers, std::size_t head_dim, std::size_t first_query,
                    const TokenRange* ranges) {
  TokenRange all = {kUnitTokens, 0};
  TokenRange shared = {0, kUnitTokens};
  for (std::size_t r = 0; r < kRows; ++r) {
    if (ranges[r].empty()) continue;
    all = {std::min(all.begin, ranges[r].begin), std::max(all.end, ranges[r].end)};
    shared = {std::max(shared.begin, ranges[r].begin), std::min(shared.end, ranges[r].end)};
  }
  if (all.empty()) return;
  if (shared.empty()) shared = {kUnitTokens, kUnitTokens};

  const PackedRows<kRows> queries{buffers.queries + first_query * head_dim};
  for (std::size_t t = all.begin / (2 * kLanes) * (2 * kLanes); t < all.end; t += 2 * kLanes) {
    unit.template score<kRows>(queries, t, buffers.scores);
  }
  const std::size_t stride = buffers.padded_dim;
  const bool ragged = all.begin < shared.begin;
  if (ragged) std::fill_n(buffers.weighed, kRows * stride, 0.0f);
  UnitSum sums[kRows] = {};
  for (std::size_t r = 0; r < kRows; ++r) {
    if (ranges[r].empty()) continue;
    float* const p = buffers.scores + r * kUnitTokens;
    sums[r] = softmax_unit(p, ranges[r]);
    const TokenRange before = {ranges[r].begin, std::min(ranges[r].end, shared.begin)};
    unit.template weigh<1>(p, before, buffers.weighed + r * stride, stride, true);
  }
  unit.template weigh<kRows>(buffers.scores, shared, buffers.weighed, stride, ragged);
  for (std::size_t r = 0; r < kRows; ++r) {
    if (ranges[r].empty()) continue;
    const TokenRange after = {std::max(shared.end, ranges[r].begin), ranges[r].end};
    unit.template weigh<1>(buffers.scores + r * kUnitTokens, after, buffers.weighed + r * stride, stride, true);
    const std::size_t query = first_query + r;
    merge_unit(sums[r], buffers.weighed + r * stride, stride, buffers.states[query], buffers.out + query * stride);
  }
}

template <typename Unit, std::size_t... kRow>
void tile_of_rows(std::size_t rows, const Unit& unit, const AttentionBuffers& buffers, std::size_t head_dim,
                  std::size_t first_query, const TokenRange* ranges, std::index_sequence<kRow...>) {
  using Function = void (*)(const Unit&, const AttentionBuffers&, std::size_t, std::size_t, const TokenRange*);
  static constexpr Function kFunctions[] = {&tile_over_unit<kRow + 1, Unit>...};
  kFunctions[rows - 1](unit, buffers, head_dim, first_query, ranges);
}

// ---- One row over one unit, for several KV heads --------------------------------------------------------------------

// A step of decoding reads K and V once and is bound by that. All heads of a block lie together, so the heads are swept
// within each block: long runs of memory instead of short pieces, which the hardware fetches twice as fast.
template <std::size_t kRows, Dtype kType>
void sweep_unit(const AttentionItem& item, const AttentionBuffers& buffers, std::size_t unit, std::size_t end) {
  const TokenRange range = item.visible(0).within(unit);
  const std::size_t dim = item.geometry.head_dim;
  const std::size_t stride = buffers.padded_dim;
  for (std::size_t t = range.begin / (2 * kLanes) * (2 * kLanes); t < range.end; t += 2 * kLanes) {
    for (std::size_t head = 0; head < item.kv_heads; ++head) {
      const AttentionItem of_head = item.of_head(head);
      CacheUnit<kType>(of_head, unit, end, true)
          .score(PackedRows<kRows>{buffers.queries + head * kRows * dim}, t,
                 buffers.scores + head * kRows * kUnitTokens);
    }
  }
  UnitSum sums[kSweepQueries];
  const std::size_t queries = item.kv_heads * kRows;
  for (std::size_t query = 0; query < queries; ++query) {
    sums[query] = softmax_unit(buffers.scores + query * kUnitTokens, range);
  }
  const std::size_t tokens = item.geometry.block_tokens;
  for (std::size_t t = range.begin; t < range.end;) {
    const std::size_t count = std::min(range.end - t, tokens - (unit + t) % tokens);
    for (std::size_t head = 0; head < item.kv_heads; ++head) {
      const AttentionItem of_head = item.of_head(head);
      CacheUnit<kType>(of_head, unit, end, true)
          .template weigh<kRows>(buffers.scores + head * kRows * kUnitTokens, {t, t + count},
                                 buffers.weighed + head * kRows * stride, stride, t > range.begin);
    }
    t += count;
  }
  for (std::size_t query = 0; query < queries; ++query) {
    merge_unit(sums[query], buffers.weighed + query * stride, stride, buffers.states[query],
               buffers.out + query * stride);
  }
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

// Queries of the item are those from `first` on in the buffers.
void write_out(const AttentionItem& item, const AttentionBuffers& buffers, std::size_t first) {
  const F32 f32;
  const std::size_t dim = item.geometry.head_dim;
  for (std::size_t query = 0; query < item.queries(); ++query) {
    const auto sum = hn::Set(f32, buffers.states[first + query].sum);
    const float* const from = buffers.out + (first + query) * buffers.padded_dim;
    float* const to = item.result(query);
    std::size_t d = 0;
    for (; d + kLanes <= dim; d += kLanes) hn::StoreU(hn::Div(hn::Load(f32, from + d), sum), f32, to + d);
    if (d < dim) store_part(hn::Div(hn::Load(f32, from + d), sum), to + d, dim - d);
  }
}

template <typename Unit>
void tiles_over_unit(const AttentionItem& item, const RowTiles& tiles, std::size_t begin, const Unit& unit,
                     const AttentionBuffers& buffers) {
  for (std::size_t tile = 0; tile < tiles.tiles; ++tile) {
    const std::size_t rows = tiles.rows_of(tile);
    const std::size_t start = tiles.start_of(tile);
    TokenRange ranges[kTileRows];
    for (std::size_t r = 0; r < rows; ++r) ranges[r] = item.visible(start + r).within(begin);
    tile_of_rows(rows, unit, buffers, item.geometry.head_dim, start, ranges, std::make_index_sequence<kTileRows>());
  }
}

void clear(const AttentionBuffers& buffers, std::size_t queries) {
  std::fill_n(buffers.out, queries * buffers.padded_dim, 0.0f);
  std::fill_n(buffers.states, queries, QueryState{-std::numeric_limits<float>::infinity(), 0.0f});
}

template <Dtype kType>
void attend_rows(const AttentionItem& item, Scratch& scratch) {
  const std::size_t queries = item.queries();
  const RowTiles tiles(queries, kTileRows);
  const bool staged = tiles.tiles > 1 || !CacheUnit<kType>::fits(item.geometry);
  const AttentionBuffers buffers(scratch, queries, item.geometry.head_dim, kTileRows, staged);
  pack_queries(item, tiles, buffers.queries);
  clear(buffers, queries);

  const std::size_t begin = item.visible(0).begin;
  const std::size_t end = item.visible(queries - 1).end;
  for (std::size_t unit = begin / kUnitTokens * kUnitTokens; unit < end; unit += kUnitTokens) {
    if (staged) {
      StagedUnit source(buffers, item.geometry.head_dim);
      source.fill(PagedHead<kType>{item}, unit, std::max(unit, begin), std::min(unit + kUnitTokens, end));
      tiles_over_unit(item, tiles, unit, source, buffers);
    } else {
      tiles_over_unit(item, tiles, unit, CacheUnit<kType>(item, unit, end, false), buffers);
    }
  }
  write_out(item, buffers, 0);
}

template <Dtype kType, std::size_t... kRow>
void attend_sweep(const AttentionItem& item, Scratch& scratch, std::index_sequence<kRow...>) {
  using Function = void (*)(const AttentionItem&, const AttentionBuffers&, std::size_t, std::size_t);
  static constexpr Function kFunctions[] = {&sweep_unit<kRow + 1, kType>...};
  const std::size_t group = item.group();
  const std::size_t queries = item.kv_heads * group;
  const AttentionBuffers buffers(scratch, queries, item.geometry.head_dim, queries, false);
  for (std::size_t head = 0; head < item.kv_heads; ++head) {
    pack_queries(item.of_head(head), RowTiles(group, kTileRows),
                 buffers.queries + head * group * item.geometry.head_dim);
  }
  clear(buffers, queries);
  const TokenRange visible = item.visible(0);
  for (std::size_t unit = visible.begin / kUnitTokens * kUnitTokens; unit < visible.end; unit += kUnitTokens) {
    kFunctions[group - 1](item, buffers, unit, visible.end);
  }
  for (std::size_t head = 0; head < item.kv_heads; ++head) write_out(item.of_head(head), buffers, head * group);
}

template <Dtype kType>
void attend_typed(const AttentionItem& item) {
  static thread_local Scratch scratch;
  if (item.kv_heads > 1 && item.group() <= kTileRows && CacheUnit<kType>::fits(item.geometry)) {
    return attend_sweep<kType>(item, scratch, std::make_index_sequence<kTileRows>());
  }
  for (std::size_t head = 0; head < item.kv_heads; ++head) attend_rows<kType>(item.of_head(head), scratch);
}

void attend(const AttentionItem& item) {
  switch (item.geometry.dtype) {
    case Dtype::kF32: return attend_typed<Dtype::kF32>(item);
    case Dtype::kBf16: return attend_typed<Dtype::kBf16>(item);
    case Dtype::kF16: return attend_typed<Dtype::kF16>(item);
  }
}

}  // namespace nmc::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace nmc::kernels {
namespace {

HWY_EXPORT(attend);

// Queries that share one staging of K and V. More cost less; fewer balance the threads.
constexpr std::size_t kQueriesPerItem = 96;

// How the tasks of a call are cut in items. No cut changes a bit of any result.
class Cut {
 public:
  Cut(const PagedGeometry& geometry, std::span<const AttentionTask> tasks, int threads) : geometry_(geometry) {
    const std::size_t group = geometry.heads / geometry.kv_heads;
    rows_ = std::max<std::size_t>(1, kQueriesPerItem / std::max<std::size_t>(1, group));
    // Several heads to an item where that leaves enough items for all threads.
    const std::size_t fair = geometry.kv_heads * tasks.size() / (static_cast<std::size_t>(threads) * 2);
    const std::size_t most = kSweepQueries / std::max<std::size_t>(1, group);
    kv_heads_ = std::clamp<std::size_t>(std::min(fair, most), 1, geometry.kv_heads);
  }

  std::size_t items(const AttentionTask& task) const { return pieces(task) * head_groups(task); }
  AttentionItem item(const AttentionTask& task, std::size_t index, float scale, std::size_t window) const {
    const std::size_t heads = heads_at_once(task);
    // Later rows see more: begin with them, so that the threads end together.
    const std::size_t first_row = (pieces(task) - 1 - index / head_groups(task)) * rows_;
    const std::size_t kv_head = index % head_groups(task) * heads;
    return {geometry_, task,
            kv_head,   std::min(heads, geometry_.kv_heads - kv_head),
            first_row, std::min(rows_, task.rows - first_row),
            scale,     window};
  }

 private:
  std::size_t pieces(const AttentionTask& task) const { return (task.rows + rows_ - 1) / rows_; }
  std::size_t heads_at_once(const AttentionTask& task) const { return task.rows == 1 ? kv_heads_ : 1; }
  std::size_t head_groups(const AttentionTask& task) const {
    return (geometry_.kv_heads + heads_at_once(task) - 1) / heads_at_once(task);
  }

  const PagedGeometry& geometry_;
  std::size_t rows_;      // of a task with several
  std::size_t kv_heads_;  // of a task with one
};

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
  const Cut cut(geometry, tasks, pool.size());
  std::size_t items = 0;
  for (const AttentionTask& task : tasks) items += cut.items(task);

  const auto attend_item = [&](std::size_t index) {
    auto task = tasks.begin();
    for (; index >= cut.items(*task); ++task) index -= cut.items(*task);
    HWY_DYNAMIC_DISPATCH(attend)(cut.item(*task, index, scale, window));
  };
  pool.parallel_for(items, 1, [&](std::size_t begin, std::size_t end, int) {
    for (std::size_t index = begin; index < end; ++index) attend_item(index);
  });
}

}  // namespace nmc::kernels
#endif  // HWY_ONCE
