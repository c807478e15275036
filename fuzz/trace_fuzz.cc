// A trace as anybody may have written it, plain or compressed. The first byte has the options. Whatever the bytes are,
// the reader answers with an error that names the place, or with a trace whose requests fit their blocks and come in
// order.
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "base/json.h"
#include "sim/trace_reader.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const nmc::sim::TraceOptions options{.block_tokens = data[0] % 2 == 0 ? 512u : 16u, .sort = data[0] / 2 % 2 == 1};
  const std::string_view bytes(reinterpret_cast<const char*>(data + 1), size - 1);
  const auto trace = nmc::sim::parse_trace(bytes, "input", options);
  if (!trace) {
    const std::string& message = trace.error().message;
    NMC_ASSERT(message.starts_with("input:") && nmc::is_valid_utf8(message), "{}", message);
    return 0;
  }
  NMC_ASSERT(!trace->requests().empty());
  std::uint64_t blocks = 0, tokens = 0;
  std::int64_t arrival_us = 0;
  for (const nmc::sim::TraceRequest& request : trace->requests()) {
    NMC_ASSERT(request.arrival_us >= arrival_us && request.input_tokens > 0 && request.line > 0);
    NMC_ASSERT(request.block_count == (request.input_tokens + options.block_tokens - 1) / options.block_tokens,
               "line={} blocks={} tokens={}", request.line, request.block_count, request.input_tokens);
    for (const std::uint32_t block : trace->blocks_of(request)) NMC_ASSERT(block < trace->blocks_unique());
    arrival_us = request.arrival_us;
    blocks += request.block_count;
    tokens += request.input_tokens;
  }
  NMC_ASSERT(blocks == trace->blocks_total() && tokens == trace->input_tokens_total());
  return 0;
}
