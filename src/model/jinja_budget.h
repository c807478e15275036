// What one rendering of a chat template may still use, so that no template and no request can make it run or grow
// without end.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/result.h"

namespace nmc::model::jinja {

inline constexpr std::uint64_t kStepsMax = 4'000'000;     // expressions, statements and items looked at
inline constexpr std::uint64_t kStepsOfText = 8;          // of each string of a list that is made of one string
inline constexpr std::uint64_t kBytesMax = 512ull << 20;  // of strings read and made, all together
inline constexpr std::size_t kTextBytesMax = 16 << 20;    // of one string, and of the prompt
inline constexpr std::int64_t kRangeMax = 100'000;        // as Jinja's sandbox has it
inline constexpr int kRecursionMax = 400;                 // statements, expressions and macros within each other

class Budget {
 public:
  explicit Budget(std::uint64_t steps = kStepsMax, std::uint64_t bytes = kBytesMax)
      : steps_max_(steps), bytes_max_(bytes), steps_(steps), bytes_(bytes) {}

  Result<void> take_steps(std::uint64_t count) {
    if (count > steps_) [[unlikely]] {
      steps_ = 0;
      return invalid_argument("stopped after {} steps: it runs too long for this conversation", steps_max_);
    }
    steps_ -= count;
    return {};
  }

  static Result<void> check_text(std::uint64_t bytes) {
    if (bytes <= kTextBytesMax) [[likely]]
      return {};
    return invalid_argument("a string of more than {} MiB", kTextBytesMax >> 20);
  }

  // For work on a string of that size; fails also when one string would be larger than allowed.
  Result<void> take_bytes(std::uint64_t count) {
    NMC_RETURN_IF_ERROR(check_text(count));
    if (count > bytes_) [[unlikely]] {
      bytes_ = 0;
      return invalid_argument("stopped after {} MiB of strings: it makes too much of this conversation",
                              bytes_max_ >> 20);
    }
    bytes_ -= count;
    return {};
  }

 private:
  std::uint64_t steps_max_, bytes_max_;
  std::uint64_t steps_, bytes_;  // left
};

}  // namespace nmc::model::jinja
