// A trace: requests in the order of their arrival, each a chain of blocks of the prompt. Blocks that are the same have
// the same number, whoever sends them.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/hash.h"
#include "base/result.h"
#include "sim/key_table.h"

namespace nmc::sim {

struct TraceRequest {
  std::int64_t arrival_us = 0;  // from any start
  std::uint32_t input_tokens = 0;
  std::uint32_t output_tokens = 0;
  std::uint64_t first_block = 0;  // where its blocks begin in Trace::blocks
  std::uint32_t block_count = 0;
  std::int64_t session = -1;  // the conversation it belongs to; -1 where the trace doesn't say
  std::uint64_t line = 0;     // of its file, from 1; 0 where there is none
};

// Immutable once built, so threads can share it.
class Trace {
 public:
  // `name` is for messages and reports. A block is that many tokens, the last one of a prompt may be fewer.
  Trace(std::string name, std::uint32_t block_tokens) : name_(std::move(name)), block_tokens_(block_tokens) {}

  // Appends; `keys` name the blocks. kResourceExhausted beyond 2^32 - 2 different blocks.
  Result<void> add(TraceRequest request, std::span<const std::uint64_t> keys);
  // By arrival; what arrives at once stays in its order.
  void sort_by_arrival();
  void shrink() { blocks_.shrink_to_fit(); }

  const std::string& name() const { return name_; }
  std::uint32_t block_tokens() const { return block_tokens_; }
  std::span<const TraceRequest> requests() const { return requests_; }
  std::span<const std::uint32_t> blocks_of(const TraceRequest& request) const {
    return std::span(blocks_).subspan(request.first_block, request.block_count);
  }
  std::size_t blocks_total() const { return blocks_.size(); }
  std::size_t blocks_unique() const { return table_.size(); }
  // The name that block `number` has in the trace.
  std::uint64_t key_of(std::uint32_t number) const { return table_.keys()[number]; }
  std::uint64_t input_tokens_total() const { return input_tokens_total_; }
  std::uint64_t output_tokens_total() const { return output_tokens_total_; }

 private:
  std::string name_;
  std::uint32_t block_tokens_;
  std::vector<TraceRequest> requests_;
  std::vector<std::uint32_t> blocks_;
  KeyTable table_;
  std::uint64_t input_tokens_total_ = 0;
  std::uint64_t output_tokens_total_ = 0;
};

// SHA-256 of its requests in their order: when, how long, whose, and which blocks; not of its name. Equal for equal
// requests whatever file and format they come from.
Digest digest_of(const Trace& trace);

}  // namespace nmc::sim
