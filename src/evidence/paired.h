// Whether one way of serving is faster than another, from the same requests served both ways.
//
// Requests of one start of a system share its luck: where its memory lies, what else the machine did. So the unit that
// is resampled is the start (a repeat of a run), a cluster of pairs, and never the request.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace nmc::evidence {

struct Pair {
  double control = 0, treatment = 0;  // both above 0
};
using Cluster = std::vector<Pair>;  // not empty

// With k clusters no interval made of them can hold the true median more often than 1 - 2^(1-k): 0.94 of the time with
// five, 0.97 with six.
inline constexpr std::size_t kClustersMin = 6;
inline constexpr std::size_t kResamples = 4000;

// Of treatment over control: the geometric mean over clusters, each counting the same. Below 1 the treatment is faster.
struct Effect {
  double ratio = 1;
  // 95 % interval: percentiles over resampled clusters, widened for their small number as Student's t is wider than the
  // normal distribution. Equal for equal clusters in any order.
  double low = 1, high = 1;
  std::size_t clusters = 0, pairs = 0;
};
// At least two clusters.
Effect effect_of(const std::vector<Cluster>& clusters);

enum class Outcome { kWin, kLoss, kNeutral, kInsufficient };
std::string_view outcome_name(Outcome outcome);  // "win", "loss", "neutral", "insufficient_evidence"

// Win: the whole interval is below 1 - margin. Loss: above 1 + margin. Neutral: between the two. Otherwise the interval
// is too wide to tell, and that is insufficient; so are too few clusters.
Outcome judge_effect(const Effect& effect, double margin);

}  // namespace nmc::evidence
