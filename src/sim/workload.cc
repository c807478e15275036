#include "sim/workload.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "base/rng.h"
#include "sim/trace_assembler.h"

namespace nmc::sim {
namespace {

constexpr const char* kNames[] = {"scan", "zipf", "burst", "model-switch", "multi-turn"};
constexpr double kBurstTime = 0.1, kBurstRequests = 0.5, kBurstPeriodS = 60;
constexpr std::uint32_t kModels = 4;

double exponential(Rng& rng, double mean) { return -mean * std::log1p(-rng.unit()); }

std::int64_t tokens(double drawn) { return static_cast<std::int64_t>(std::clamp(std::floor(drawn), 1.0, 1e6)); }

class Zipf {
 public:
  Zipf(std::uint32_t items, double exponent) {
    double sum = 0;
    for (std::uint32_t k = 1; k <= items; ++k) sums_.push_back(sum += std::pow(k, -exponent));
  }
  std::uint32_t draw(Rng& rng) const {
    const auto at = std::upper_bound(sums_.begin(), sums_.end(), rng.unit() * sums_.back());
    return static_cast<std::uint32_t>(std::min<std::ptrdiff_t>(at - sums_.begin(), std::ssize(sums_) - 1));
  }

 private:
  std::vector<double> sums_;
};

// Poisson, at a rate that depends on the time where there are bursts.
class Arrivals {
 public:
  Arrivals(double rate_per_s, bool bursts) : rate_per_s_(rate_per_s), bursts_(bursts) {}
  std::int64_t next_us(Rng& rng) {
    double left = exponential(rng, 1);  // to be spent at the rate of the time
    while (bursts_) {
      const double phase = std::fmod(now_s_, kBurstPeriodS);
      const bool in_burst = phase < kBurstTime * kBurstPeriodS;
      const double part = in_burst ? kBurstRequests / kBurstTime : (1 - kBurstRequests) / (1 - kBurstTime);
      const double until_s = (in_burst ? kBurstTime * kBurstPeriodS : kBurstPeriodS) - phase + 1e-9;
      if (left <= until_s * rate_per_s_ * part) {
        now_s_ += left / (rate_per_s_ * part);
        return std::llround(now_s_ * 1e6);
      }
      left -= until_s * rate_per_s_ * part;
      now_s_ += until_s;
    }
    now_s_ += left / rate_per_s_;
    return std::llround(now_s_ * 1e6);
  }

 private:
  double rate_per_s_;
  bool bursts_;
  double now_s_ = 0;
};

Result<Trace> documents_workload(std::string_view name, const WorkloadOptions& options, TraceAssembler assembler) {
  Rng rng(options.seed);
  const Zipf zipf(options.documents, options.zipf_exponent);
  std::vector<std::int64_t> lengths;
  for (std::uint32_t i = 0; i < options.documents; ++i) {
    lengths.push_back(tokens(options.prefix_tokens * (0.5 + rng.unit())));
  }
  Arrivals arrivals(options.rate_per_s, name == "burst");
  for (std::uint32_t i = 0; i < options.requests; ++i) {
    TraceAssembler::Common common;
    common.arrival_us = arrivals.next_us(rng);
    const std::uint32_t document = name == "scan" ? i % options.documents : zipf.draw(rng);
    const std::int64_t suffix = tokens(exponential(rng, options.suffix_tokens));
    common.output_tokens = tokens(exponential(rng, options.output_tokens));
    const std::uint64_t model = name == "model-switch" ? std::uint64_t{i} * kModels / options.requests : 0;
    NMC_RETURN_IF_ERROR(
        assembler.add_prefixed(common, std::to_string(model), std::to_string(document), lengths[document], suffix));
  }
  return std::move(assembler).finish();
}

struct Talk {
  std::int64_t session = 0, tokens = 0, answer = 0;
};

// At each arrival one of the talks goes on, or ends and makes room for a new one.
Result<Trace> talks_workload(const WorkloadOptions& options, TraceAssembler assembler) {
  Rng rng(options.seed);
  Arrivals arrivals(options.rate_per_s, false);
  std::vector<Talk> talks(options.documents);
  std::int64_t sessions = 0;
  std::vector<std::uint64_t> keys;
  for (std::uint32_t i = 0; i < options.requests; ++i) {
    TraceAssembler::Common common;
    common.arrival_us = arrivals.next_us(rng);
    Talk& talk = talks[rng.below(talks.size())];
    const std::int64_t added = tokens(exponential(rng, options.suffix_tokens));
    const bool ends = talk.tokens == 0 || rng.unit() < 1.0 / options.turns;
    if (ends || talk.tokens + talk.answer + added > kTokensMax) {
      talk = {sessions++, tokens(options.prefix_tokens * (0.5 + rng.unit())), 0};
    } else {
      talk.tokens += talk.answer + added;
    }
    talk.answer = common.output_tokens = tokens(exponential(rng, options.output_tokens));
    common.session = talk.session;
    // A full block has one name for all turns; a partial last one has one for this turn only.
    const std::int64_t full = talk.tokens / options.block_tokens;
    keys.clear();
    for (std::int64_t b = 0; b < full; ++b) {
      keys.push_back(static_cast<std::uint64_t>(talk.session) << 32 | static_cast<std::uint64_t>(b));
    }
    if (talk.tokens % options.block_tokens != 0) keys.push_back(std::uint64_t{1} << 63 | i);
    NMC_RETURN_IF_ERROR(assembler.add_chain(common, talk.tokens, keys));
  }
  return std::move(assembler).finish();
}

}  // namespace

std::span<const char* const> workload_names() { return kNames; }

Result<Trace> make_workload(std::string_view name, const WorkloadOptions& options) {
  if (std::find(std::begin(kNames), std::end(kNames), name) == std::end(kNames)) {
    return invalid_argument("workload \"{}\": expected one of {}", name, fmt::join(kNames, ", "));
  }
  NMC_REQUIRE(options.requests > 0 && options.documents > 0 && options.rate_per_s > 0 && options.turns > 0);
  TraceAssembler assembler(fmt::format("{} workload, seed {}", name, options.seed),
                           {.block_tokens = options.block_tokens, .sort = false});
  if (name == "multi-turn") return talks_workload(options, std::move(assembler));
  return documents_workload(name, options, std::move(assembler));
}

}  // namespace nmc::sim
