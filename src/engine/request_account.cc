#include "engine/request_account.h"

namespace nmc::engine {

Result<void> count_arrival(RuntimeCounters& counters, bool draining, std::size_t queued, std::size_t max_queue) {
  ++counters.requests_received;
  if (draining) return unavailable("the server is draining and takes no new requests");
  if (queued < max_queue) return {};
  ++counters.requests_rejected;
  return resource_exhausted("the queue is full: {} requests are waiting", queued);
}

void measure_ending(RequestMetrics& metrics, std::size_t output_tokens, Nanos submitted, Nanos first_token, Nanos now) {
  metrics.output_tokens = output_tokens;
  metrics.e2e_ms = to_ms(now - submitted);
  if (first_token == Nanos{0}) return;
  metrics.ttft_ms = to_ms(first_token - submitted);
  metrics.decode_ms = to_ms(now - first_token);
}

void count_ending(RuntimeCounters& counters, FinishReason reason, const RequestMetrics& metrics, bool was_admitted) {
  ++(reason == FinishReason::kCancelled ? counters.requests_cancelled
     : reason == FinishReason::kFailed  ? counters.requests_failed
                                        : counters.requests_finished);
  if (was_admitted) {
    counters.prompt_tokens += metrics.prompt_tokens;
    counters.computed_tokens += metrics.computed_tokens;
    counters.saved_tokens += metrics.saved_tokens;
    counters.hit_blocks += metrics.hit_blocks;
  }
  counters.output_tokens += metrics.output_tokens;
  counters.snapshot_bytes += metrics.snapshot_bytes;
  counters.transfer_bytes += metrics.transfer_bytes;
}

}  // namespace nmc::engine
