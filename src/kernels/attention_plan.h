// The parts of paged attention that don't depend on the instruction set: what an item of work is, and its memory.
#pragma once

#include <algorithm>
#include <cstddef>

#include "kernels/kernels.h"
#include "kernels/matmul_plan.h"
#include "kernels/scratch.h"

namespace nmc::kernels {

// Softmax is reduced over units of this many positions, counted from position 0: each unit by itself, then joined in
// order. So neither the block size nor how rows are cut into calls changes a bit.
inline constexpr std::size_t kUnitTokens = 128;

// Staged keys are cut in columns of so many tokens, each with all of head_dim together: a stride of a whole unit would
// map every row to the same few sets of the first cache.
inline constexpr std::size_t kKeyColumns = 32;

// Queries that an item of several KV heads may have.
inline constexpr std::size_t kSweepQueries = 16;

struct TokenRange {
  std::size_t begin = 0;
  std::size_t end = 0;

  bool empty() const { return begin >= end; }
  // The part inside the unit that starts at `unit`, counted from there.
  TokenRange within(std::size_t unit) const {
    const std::size_t first = std::max(begin, unit);
    const std::size_t last = std::min(end, unit + kUnitTokens);
    return first < last ? TokenRange{first - unit, last - unit} : TokenRange{};
  }
};

// Rows [first_row, first_row + rows) of a task for the query heads that share one KV head. Queries are numbered row by
// row. An item of one row may stand for several KV heads; what is said of queries is then meant for each by itself.
struct AttentionItem {
  const PagedGeometry& geometry;
  const AttentionTask& task;
  std::size_t kv_head;
  std::size_t kv_heads;
  std::size_t first_row;
  std::size_t rows;
  float scale;
  std::size_t window;

  AttentionItem of_head(std::size_t index) const {
    return {geometry, task, kv_head + index, 1, first_row, rows, scale, window};
  }
  std::size_t group() const { return geometry.heads / geometry.kv_heads; }
  std::size_t queries() const { return rows * group(); }
  std::size_t row(std::size_t query) const { return first_row + query / group(); }
  std::size_t head(std::size_t query) const { return kv_head * group() + query % group(); }
  const float* query(std::size_t index) const {
    return task.q + row(index) * task.q_stride + head(index) * geometry.head_dim;
  }
  float* result(std::size_t index) const {
    return task.out + row(index) * task.out_stride + head(index) * geometry.head_dim;
  }
  // Positions that a query attends to.
  TokenRange visible(std::size_t query) const {
    const std::size_t end = task.start + row(query) + 1;
    return {window > 0 && end > window ? end - window : 0, end};
  }
};

// Softmax of a query so far: largest score and the sum of exponentials relative to it.
struct QueryState {
  float max;
  float sum;
};

// A thread's memory for one item, all 64-byte aligned.
struct AttentionBuffers {
  std::size_t padded_dim;  // head_dim up to whole tiles
  float* queries;          // [queries][head_dim], scaled and packed in tiles
  float* out;              // [queries][padded_dim]
  QueryState* states;      // [queries]
  float* keys;             // [kUnitTokens / kKeyColumns][head_dim][kKeyColumns]
  float* values;           // [kUnitTokens][padded_dim]
  float* scores;           // [rows_at_once][kUnitTokens]
  float* weighed;          // [rows_at_once][padded_dim]

  // Without `staging`, keys and values have no room.
  AttentionBuffers(Scratch& scratch, std::size_t query_count, std::size_t head_dim, std::size_t rows_at_once,
                   bool staging) {
    padded_dim = aligned(head_dim, 32);
    const std::size_t sizes[] = {query_count * head_dim,
                                 query_count * padded_dim,
                                 query_count * 2,
                                 staging ? head_dim * kUnitTokens : 0,
                                 staging ? kUnitTokens * padded_dim : 0,
                                 rows_at_once * kUnitTokens,
                                 rows_at_once * padded_dim};
    float* parts[std::size(sizes)];
    std::size_t total = 0;
    for (const std::size_t size : sizes) total += aligned(size, 16);
    float* next = scratch.reserve(total);
    for (std::size_t i = 0; i < std::size(sizes); ++i) {
      parts[i] = next;
      next += aligned(sizes[i], 16);
    }
    queries = parts[0];
    out = parts[1];
    states = reinterpret_cast<QueryState*>(parts[2]);
    keys = parts[3];
    values = parts[4];
    scores = parts[5];
    weighed = parts[6];
  }

 private:
  static constexpr std::size_t aligned(std::size_t size, std::size_t to) { return (size + to - 1) / to * to; }
};

}  // namespace nmc::kernels
