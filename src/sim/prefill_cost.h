// How long prefill takes: a + b x tokens + c x tokens^2 seconds for a whole prompt. With a prefix from the cache it is
// the rest of that: the fixed part, and what b and c give for the prompt less what they give for the prefix.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/result.h"

namespace nmc::sim {

struct PrefillCost {
  double fixed_s = 0.01;
  double token_s = 1e-4;
  double token_squared_s = 1e-9;

  // For tokens `from` to `to` of a prompt, without the fixed part.
  double span_s(double from, double to) const {
    return token_s * (to - from) + token_squared_s * (to * to - from * from);
  }
  double prompt_s(double cached, double tokens) const { return fixed_s + span_s(cached, tokens); }
};

// "0.01+1e-4*n+1e-9*n^2", terms in any order, each at most once, what is missing is 0; none below 0. Errors show `text`
// and what was expected.
Result<PrefillCost> parse_prefill_cost(std::string_view text);

}  // namespace nmc::sim
