// What both forms of a trace have in common: the checks of a request's fields and the blocks made of them.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "sim/trace.h"
#include "sim/trace_reader.h"

namespace nmc::sim {

inline constexpr std::int64_t kTokensMax = std::int64_t{1} << 22;  // of one prompt or answer
inline constexpr double kArrivalMsMax = 9e12;
inline constexpr std::int64_t kSessionMax = (std::int64_t{1} << 53) - 1;

// Not thread-safe. Tokens, sessions and times given are within the limits above.
class TraceAssembler {
 public:
  struct Common {
    std::uint64_t line = 0;
    std::int64_t arrival_us = 0;
    std::int64_t output_tokens = 0;
    std::int64_t session = -1;
    const char* time_field = "";  // for the message
  };

  TraceAssembler(std::string name, const TraceOptions& options)
      : options_(options), trace_(std::move(name), options.block_tokens) {}

  Result<void> add_chain(const Common& common, std::int64_t input_tokens, std::span<const std::uint64_t> hash_ids);
  Result<void> add_prefixed(const Common& common, std::string_view name_space, std::string_view prefix_id,
                            std::int64_t prefix_tokens, std::int64_t suffix_tokens);
  // kInvalidArgument if there was no request.
  Result<Trace> finish() &&;

 private:
  Result<void> add(const Common& common, std::int64_t input_tokens, std::span<const std::uint64_t> keys);

  TraceOptions options_;
  Trace trace_;
  std::unordered_map<std::string, std::uint64_t> prefixes_;  // namespace, a byte 0, prefix_id -> number
  std::uint64_t lone_blocks_ = 0;
  std::vector<std::uint64_t> keys_;
};

}  // namespace nmc::sim
