// Cuts text into the pieces inside which byte-pair merges happen.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/thread_pool.h"
#include "model/piece_patterns.h"
#include "model/regex.h"

namespace nmc::model {

// What becomes of the delimiters that a Split finds.
enum class SplitBehavior : std::uint8_t {
  kRemoved,
  kIsolated,            // a piece of its own
  kMergedWithPrevious,  // joined to the text before it; further ones after it are pieces of their own
  kMergedWithNext,      // joined to the text after it; further ones before it are pieces of their own
  kContiguous,          // a row of them is one piece
};

struct SplitStep {
  std::shared_ptr<const Regex> regex;  // shared by copies of the step; nullptr where piece_end is set
  PieceEnd piece_end = nullptr;        // a matcher in the regex's place
  SplitBehavior behavior = SplitBehavior::kIsolated;
  bool invert = false;  // delimiters are what the pattern doesn't match
};

struct DigitsStep {
  bool individual = false;  // each digit a piece of its own, else runs of digits
};

// A space becomes `replacement`, at which the text is cut.
struct MetaspaceStep {
  enum class Prepend : std::uint8_t { kAlways, kFirst, kNever };
  std::string replacement;             // one character
  Prepend prepend = Prepend::kAlways;  // to texts that don't begin with it; kFirst: only at the start of all
  bool split = true;
};

// The last step of tokenizers whose model sees bytes.
struct ByteLevelStep {
  bool add_prefix_space = false;  // to texts that don't begin with one
  bool use_pattern = true;        // cut by the pattern of GPT-2
};

// Immutable, thread-safe. Each step cuts what the one before it left.
class PreTokenizer {
 public:
  using Step = std::variant<SplitStep, DigitsStep, MetaspaceStep, ByteLevelStep>;

  PreTokenizer() = default;
  explicit PreTokenizer(std::vector<Step> steps) : steps_(std::move(steps)) {}

  // Calls `piece` for the consecutive non-empty pieces of `text`. A view lasts for the call only. `at_start`: the text
  // is where the whole input begins. Time is linear in the text.
  void for_each_piece(std::string_view text, bool at_start, FunctionRef<void(std::string_view piece)> piece) const;

  const std::vector<Step>& steps() const { return steps_; }

 private:
  using Sink = FunctionRef<void(std::string_view)>;
  void run(std::size_t step, std::string_view text, bool at_start, Sink piece) const;

  std::vector<Step> steps_;
};

}  // namespace nmc::model
