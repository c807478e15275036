// How large a KV cache is: exact byte counts of a token, a request, a rank, a batch and a chunk, and the least time
// that moving a request takes. Plain arithmetic on a shape; nothing is measured.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "sim/kv_shape.h"

namespace nmc::sim {

// What is asked about a shape.
struct CapacityQuestion {
  std::uint64_t tokens = 8192;        // of a request
  std::uint64_t batch = 64;           // requests
  std::uint64_t tensor_parallel = 8;  // ranks
  std::uint64_t page_tokens = 16;     // allocated together
  std::uint64_t chunk_tokens = 256;   // stored or sent together
  std::uint64_t element_bytes = 2;    // of the cache
  std::uint64_t quant_group = 0;      // 1-byte elements that share a scale; 0: those of a vector (a head's key, say)
  std::uint64_t scale_bytes = 2;      // of a scale, and of a zero point where there is one
  bool zero_point = false;
  double bandwidth_gib_s = 20;  // above 0; what the network really carries
};

// All in bytes and exact; of KV alone unless it says otherwise.
struct CapacityRow {
  KvShape shape;
  std::uint64_t token_bytes = 0;
  std::uint64_t allocated_tokens = 0;         // whole pages
  std::uint64_t request_bytes = 0;            // of those
  std::uint64_t effective_request_bytes = 0;  // of the tokens alone
  std::uint64_t rank_heads = 0;               // KV heads that the busiest rank keeps; MLA: 1, the latent
  std::uint64_t rank_request_bytes = 0;       // of that rank
  double replication = 1;                     // bytes over all ranks by bytes of one copy
  std::uint64_t batch_bytes = 0;
  std::uint64_t chunk_bytes = 0;           // all ranks, one copy
  std::uint64_t metadata_token_bytes = 0;  // scales and zero points of 1-byte KV, which come on top
  std::uint64_t metadata_request_bytes = 0;
  double network_ms = 0;  // to move one request's pages, one copy
  double network_with_metadata_ms = 0;
  std::vector<std::string> notes;  // what a reader must know to use the row
};

// kInvalidArgument where the sizes exceed 2^62 bytes.
Result<CapacityRow> capacity_of(const KvShape& shape, const CapacityQuestion& question);

// The shape asked for, then the other attentions with the same layers and heads.
Result<std::vector<CapacityRow>> capacity_table(const KvShape& shape, const CapacityQuestion& question);

}  // namespace nmc::sim
