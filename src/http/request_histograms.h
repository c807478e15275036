// How requests were spread, for Prometheus: the histograms of vLLM's names and buckets.
#pragma once

#include <prometheus/histogram.h>

#include <cstddef>
#include <deque>
#include <vector>

#include "engine/request.h"

namespace nmc::http {

// Thread-safe.
class RequestHistograms {
 public:
  // `context`: tokens of a prompt and its answer at most; buckets of token counts end there.
  explicit RequestHistograms(std::size_t context);

  void add_first_token(double ttft_ms);
  void add_token_gap(double ms);
  // One answer is complete, which could have had `max_tokens`.
  void add_answer(const engine::RequestMetrics& metrics, std::size_t max_tokens);
  // All `n` answers to a prompt are; the longest has so many tokens.
  void add_prompt(std::size_t n, std::size_t longest_answer_tokens);

  struct Named {
    const char* name;
    const char* help;
    prometheus::ClientMetric metric;  // without labels
  };
  std::vector<Named> collect() const;

 private:
  struct Entry {
    Entry(const char* its_name, const char* its_help, const std::vector<double>& bounds)
        : name(its_name), help(its_help), histogram(bounds) {}
    const char* name;
    const char* help;
    prometheus::Histogram histogram;
  };
  prometheus::Histogram& add(const char* name, const char* help, const std::vector<double>& bounds);

  std::deque<Entry> entries_;  // in the order of the members below, which point into it
  prometheus::Histogram& ttft_;
  prometheus::Histogram& token_gap_;
  prometheus::Histogram& time_per_token_;
  prometheus::Histogram& e2e_;
  prometheus::Histogram& queue_;
  prometheus::Histogram& inference_;
  prometheus::Histogram& prefill_;
  prometheus::Histogram& decode_;
  prometheus::Histogram& prompt_tokens_;
  prometheus::Histogram& generation_tokens_;
  prometheus::Histogram& longest_generation_;
  prometheus::Histogram& computed_tokens_;
  prometheus::Histogram& params_n_;
  prometheus::Histogram& params_max_tokens_;
  prometheus::Histogram& preemptions_;
};

}  // namespace nmc::http
