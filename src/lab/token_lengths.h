// How long prompts and answers are: a fixed number of tokens, or a distribution.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace nmc::lab {

// A value. Draws are addressed: the same key, stream and index give the same length.
class TokenLengths {
 public:
  static constexpr std::size_t kTokensMax = 16 << 20;

  explicit TokenLengths(std::size_t fixed) : low_(fixed), high_(fixed) {}

  // "512"; "128-1024": all between equally often; "lognormal:MEDIAN:SIGMA:MAX": the logarithm is normal with deviation
  // SIGMA, what lies beyond MAX is MAX. All at least 1. kInvalidArgument names `text` and these forms.
  static Result<TokenLengths> parse(std::string_view text);

  std::size_t draw(std::uint64_t key, std::uint64_t stream, std::uint64_t index) const;
  std::size_t longest() const { return high_; }
  std::string to_string() const;  // as parse() takes it

 private:
  TokenLengths(std::size_t low, std::size_t high, double median = 0, double sigma = 0)
      : low_(low), high_(high), median_(median), sigma_(sigma) {}

  std::size_t low_, high_;
  double median_ = 0, sigma_ = 0;  // median 0: uniform
};

}  // namespace nmc::lab
