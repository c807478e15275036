#include "http/request_histograms.h"

#include <algorithm>

namespace nmc::http {
namespace {

using Bounds = std::vector<double>;

// Seconds to the first token, between tokens, and of a request's stages.
const Bounds kFirstToken = {0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75,
                            1,     2.5,   5,    7.5,  10,   20,   40,   80,  160,  640, 2560};
const Bounds kTokenGap = {0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5,
                          0.75, 1,     2.5,  5,     7.5, 10,   20,  40,  80};
const Bounds kStage = {0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680};
const Bounds kChoices = {1, 2, 5, 10, 20};
const Bounds kPreemptions = {0, 1, 2, 5, 10, 20};

// 1, 2, 5, 10, 20, 50, ... up to `highest`.
Bounds one_two_five(std::size_t highest) {
  Bounds bounds;
  for (std::size_t power = 1;; power *= 10) {
    for (const std::size_t digit : {1, 2, 5}) {
      if (digit * power > highest) return bounds;
      bounds.push_back(static_cast<double>(digit * power));
    }
  }
}

double seconds(double ms) { return ms / 1e3; }

}  // namespace

RequestHistograms::RequestHistograms(std::size_t context)
    : ttft_(add("vllm:time_to_first_token_seconds", "From arrival to the first token.", kFirstToken)),
      token_gap_(add("vllm:inter_token_latency_seconds", "Between two tokens of an answer.", kTokenGap)),
      time_per_token_(add("vllm:request_time_per_output_token_seconds",
                          "Of an answer of at least two tokens: the time from its first to its last, for each of them.",
                          kTokenGap)),
      e2e_(add("vllm:e2e_request_latency_seconds", "From arrival to the last token.", kStage)),
      queue_(add("vllm:request_queue_time_seconds", "From arrival to a place in the batch.", kStage)),
      inference_(add("vllm:request_inference_time_seconds", "From a place in the batch to the last token.", kStage)),
      prefill_(add("vllm:request_prefill_time_seconds", "From a place in the batch to the first token.", kStage)),
      decode_(add("vllm:request_decode_time_seconds", "From the first token to the last.", kStage)),
      prompt_tokens_(add("vllm:request_prompt_tokens", "Tokens of a prompt.", one_two_five(context))),
      generation_tokens_(add("vllm:request_generation_tokens", "Tokens of an answer.", one_two_five(context))),
      longest_generation_(add("vllm:request_max_num_generation_tokens", "Tokens of the longest answer to a prompt.",
                              one_two_five(context))),
      computed_tokens_(add("vllm:request_prefill_kv_computed_tokens",
                           "Tokens of a prompt that were computed, not read from the cache.", one_two_five(context))),
      params_n_(add("vllm:request_params_n", "The field n.", kChoices)),
      params_max_tokens_(add("vllm:request_params_max_tokens",
                             "Tokens that an answer could have: max_tokens, its default, or what fits the context.",
                             one_two_five(context))),
      preemptions_(add("vllm:request_num_preemptions", "Times that a request gave its memory back and went on later.",
                       kPreemptions)) {}

prometheus::Histogram& RequestHistograms::add(const char* name, const char* help, const Bounds& bounds) {
  return entries_.emplace_back(name, help, bounds).histogram;
}

void RequestHistograms::add_first_token(double ttft_ms) { ttft_.Observe(seconds(ttft_ms)); }
void RequestHistograms::add_token_gap(double ms) { token_gap_.Observe(seconds(ms)); }

void RequestHistograms::add_answer(const engine::RequestMetrics& metrics, std::size_t max_tokens) {
  params_max_tokens_.Observe(static_cast<double>(max_tokens));
  e2e_.Observe(seconds(metrics.e2e_ms));
  queue_.Observe(seconds(metrics.queue_ms));
  inference_.Observe(seconds(std::max(0.0, metrics.e2e_ms - metrics.queue_ms)));
  prefill_.Observe(seconds(metrics.prefill_ms));
  decode_.Observe(seconds(metrics.decode_ms));
  if (metrics.output_tokens > 1) {
    time_per_token_.Observe(seconds(metrics.decode_ms / static_cast<double>(metrics.output_tokens - 1)));
  }
  prompt_tokens_.Observe(static_cast<double>(metrics.prompt_tokens));
  generation_tokens_.Observe(static_cast<double>(metrics.output_tokens));
  computed_tokens_.Observe(static_cast<double>(std::min(metrics.computed_tokens, metrics.prompt_tokens)));
  preemptions_.Observe(static_cast<double>(metrics.preemptions));
}

void RequestHistograms::add_prompt(std::size_t n, std::size_t longest_answer_tokens) {
  params_n_.Observe(static_cast<double>(n));
  longest_generation_.Observe(static_cast<double>(longest_answer_tokens));
}

std::vector<RequestHistograms::Named> RequestHistograms::collect() const {
  std::vector<Named> named;
  for (const Entry& entry : entries_) named.push_back({entry.name, entry.help, entry.histogram.Collect()});
  return named;
}

}  // namespace nmc::http
