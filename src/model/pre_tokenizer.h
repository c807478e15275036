// Cuts text into the pieces inside which byte-pair merges happen.
#pragma once

#include <cstddef>
#include <string_view>

#include "base/thread_pool.h"

namespace nmc::model {

// The pre-tokenizers of tokenizer.json that we do: Digits (optional), then ByteLevel.
struct PreTokenizer {
  enum class Digits {
    kWithRest,    // no Digits step
    kRuns,        // a run of digits is cut off from what is around it
    kIndividual,  // each digit is
  };
  Digits digits = Digits::kWithRest;
  bool add_prefix_space = false;  // to every section that doesn't begin with one
  bool use_pattern = true;        // cut by the pattern of GPT-2; else a section is one piece

  // Calls `piece` for the consecutive non-empty pieces of `text`. A view lasts for the call only when
  // add_prefix_space is set, else as long as `text`.
  void for_each_piece(std::string_view text, FunctionRef<void(std::string_view piece)> piece) const;
};

// End of the piece that begins at `at` (< text.size()) by the pattern of GPT-2:
//   's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
std::size_t gpt2_piece_end(std::string_view text, std::size_t at);

}  // namespace nmc::model
