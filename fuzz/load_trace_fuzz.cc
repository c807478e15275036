// A trace that somebody else wrote. What is taken has to keep what the plan of a load counts on.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "lab/load_trace.h"
#include "lab/token_lengths.h"

namespace {

void require(bool condition) {
  if (!condition) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace nmc;
  using namespace nmc::lab;
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  const std::size_t block_tokens = 1 + data[0] % 16u * 64;
  const auto trace = parse_load_trace(text, "trace", data[0] / 16.0, block_tokens);
  // The same bytes as they might stand on a command line.
  if (const auto lengths = TokenLengths::parse(text)) {
    const std::size_t drawn = lengths->draw(1, 2, data[0]);
    require(drawn >= 1 && drawn <= lengths->longest());
    require(TokenLengths::parse(lengths->to_string()).has_value());
  }
  if (!trace) {
    require(!trace.error().message.empty());
    return 0;
  }
  require(!trace->requests.empty() && trace->requests.front().at == Nanos(0));
  Nanos before{0};
  for (const TracedRequest& request : trace->requests) {
    require(request.at >= before && request.input_tokens > 0 && request.output_tokens > 0);
    require((request.block_hashes.size() - 1) * block_tokens < request.input_tokens);
    require(request.block_hashes.size() * block_tokens >= request.input_tokens);
    before = request.at;
  }
  return 0;
}
