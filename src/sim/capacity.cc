#include "sim/capacity.h"

#include <fmt/format.h>

#include <algorithm>

namespace nmc::sim {
namespace {

constexpr std::uint64_t kBytesMax = std::uint64_t{1} << 62;

std::uint64_t divided_up(std::uint64_t number, std::uint64_t by) { return number / by + (number % by != 0 ? 1 : 0); }

// KV heads that each rank keeps: those that its share of the query heads reads. Where the ranks don't divide the heads,
// a KV head lies on every rank that has one of its readers.
struct Ranks {
  std::uint64_t heads_most = 0;  // of one rank
  std::uint64_t heads_all = 0;   // over all ranks
};
Ranks split_heads(const KvShape& shape, std::uint64_t ranks) {
  const std::uint64_t group = shape.heads / shape.kv_heads;
  Ranks split;
  for (std::uint64_t rank = 0; rank < ranks; ++rank) {
    const std::uint64_t begin = rank * shape.heads / ranks, end = (rank + 1) * shape.heads / ranks;
    // More ranks than heads: a head is shared, and its key lies with each.
    const std::uint64_t kept = end == begin ? 1 : (end - 1) / group - begin / group + 1;
    split.heads_most = std::max(split.heads_most, kept);
    split.heads_all += kept;
  }
  return split;
}

std::uint64_t metadata_bytes(const KvShape& shape, const CapacityQuestion& question) {
  if (question.element_bytes != 1) return 0;
  const auto scales = [&](std::uint64_t elements) {
    return divided_up(elements, question.quant_group == 0 ? elements : question.quant_group);
  };
  const std::uint64_t of_layer = shape.attention == Attention::kMla
                                     ? scales(shape.latent_dim) + scales(shape.rope_dim)
                                     : shape.kv_heads * (scales(shape.key_dim) + scales(shape.value_dim));
  return shape.layers * of_layer * question.scale_bytes * (question.zero_point ? 2 : 1);
}

Result<std::uint64_t> bounded(std::uint64_t bytes, std::uint64_t times, const char* what) {
  std::uint64_t product = 0;
  if (!__builtin_mul_overflow(bytes, times, &product) && product <= kBytesMax) return product;
  return invalid_argument("{}: {} bytes times {}: expected at most 2^62 bytes", what, bytes, times);
}

void add_rank_notes(CapacityRow& row, const CapacityQuestion& question) {
  const std::uint64_t ranks = question.tensor_parallel;
  const KvShape& shape = row.shape;
  if (ranks == 1) return;
  if (shape.attention == Attention::kMla) {
    row.notes.push_back(fmt::format("all heads share the latent, so each of the {} ranks keeps all of it", ranks));
  } else if (row.replication > 1) {
    row.notes.push_back(
        fmt::format("{} KV heads don't divide over {} ranks: a rank keeps up to {}, {:.4g} copies in all",
                    shape.kv_heads, ranks, row.rank_heads, row.replication));
  }
  if (shape.heads % ranks != 0) {
    row.notes.push_back(
        fmt::format("{} query heads don't divide over {} ranks, which engines refuse", shape.heads, ranks));
  }
}

}  // namespace

Result<CapacityRow> capacity_of(const KvShape& shape, const CapacityQuestion& question) {
  CapacityRow row;
  row.shape = shape;
  NMC_ASSIGN_OR_RETURN(row.token_bytes,
                       bounded(shape.layers * shape.layer_elements(), question.element_bytes, "a token"));
  row.allocated_tokens = divided_up(question.tokens, question.page_tokens) * question.page_tokens;
  NMC_ASSIGN_OR_RETURN(row.request_bytes, bounded(row.token_bytes, row.allocated_tokens, "a request"));
  row.effective_request_bytes = row.token_bytes * question.tokens;
  NMC_ASSIGN_OR_RETURN(row.batch_bytes, bounded(row.request_bytes, question.batch, "a batch"));
  NMC_ASSIGN_OR_RETURN(row.chunk_bytes, bounded(row.token_bytes, question.chunk_tokens, "a chunk"));
  if (shape.attention == Attention::kMla) {
    row.rank_heads = 1;
    row.rank_request_bytes = row.request_bytes;
    row.replication = static_cast<double>(question.tensor_parallel);
  } else {
    const Ranks split = split_heads(shape, question.tensor_parallel);
    row.rank_heads = split.heads_most;
    row.rank_request_bytes = row.request_bytes / shape.kv_heads * split.heads_most;
    row.replication = static_cast<double>(split.heads_all) / static_cast<double>(shape.kv_heads);
  }
  row.metadata_token_bytes = metadata_bytes(shape, question);
  NMC_ASSIGN_OR_RETURN(row.metadata_request_bytes,
                       bounded(row.metadata_token_bytes, row.allocated_tokens, "a request's metadata"));
  const double bytes_per_ms = question.bandwidth_gib_s * (std::uint64_t{1} << 30) / 1000;
  row.network_ms = static_cast<double>(row.request_bytes) / bytes_per_ms;
  row.network_with_metadata_ms = static_cast<double>(row.request_bytes + row.metadata_request_bytes) / bytes_per_ms;
  add_rank_notes(row, question);
  if (shape.window != 0 && shape.window < question.tokens) {
    row.notes.push_back(
        fmt::format("layers may attend to {} tokens only; all are counted, as a cache that keeps whole "
                    "prefixes has them",
                    shape.window));
  }
  return row;
}

Result<std::vector<CapacityRow>> capacity_table(const KvShape& shape, const CapacityQuestion& question) {
  std::vector<CapacityRow> rows;
  NMC_ASSIGN_OR_RETURN(CapacityRow asked, capacity_of(shape, question));
  rows.push_back(std::move(asked));
  for (const Attention other : {Attention::kMha, Attention::kGqa, Attention::kMqa, Attention::kMla}) {
    if (other == shape.attention) continue;
    NMC_ASSIGN_OR_RETURN(CapacityRow row, capacity_of(with_attention(shape, other), question));
    rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace nmc::sim
