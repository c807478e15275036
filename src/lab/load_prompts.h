// What is asked: the prompts of a load and the lengths of its answers, equal for equal seeds on every machine. Which
// parts of prompts are equal is by token ids, not by text.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lab/load_trace.h"
#include "lab/token_lengths.h"

namespace nmc::lab {

enum class Workload {
  kSharedPrefix,  // one system prefix, different questions
  kLongDocument,  // a few long documents, different questions on them
  kDistinct,      // nothing in common
  kNamespaces,    // equal prompts under several cache salts: one must not see another's cache
  kTrace,         // the blocks of a trace
};
const char* workload_name(Workload workload);  // "shared-prefix", "long-document", ...

// Ids that prompts are made of, both ends included; the model's vocabulary has to have all of them.
struct TokenRange {
  std::uint32_t low = 10, high = 255;
};

struct PromptOptions {
  Workload workload = Workload::kSharedPrefix;
  TokenLengths prompt_tokens{256};
  TokenLengths output_tokens{32};
  double shared_part = 0.75;  // of a prompt: its common prefix
  std::size_t groups = 1;     // > 0; different prefixes, or namespaces
  TokenRange ids;
  std::uint64_t seed = 0;
  std::shared_ptr<const LoadTrace> trace;  // kTrace: its lengths, too; requests beyond its end begin anew
};

struct LoadPrompt {
  std::vector<std::uint32_t> tokens;
  std::size_t shared_tokens = 0;  // at the front, in common with other requests of the load; 0 for a trace
  std::size_t output_tokens = 1;
  std::string salt;  // "": none
};

// Immutable, thread-safe.
class LoadPrompts {
 public:
  explicit LoadPrompts(PromptOptions options);
  LoadPrompt prompt(std::size_t index) const;
  const PromptOptions& options() const { return options_; }

 private:
  std::uint32_t token(std::uint64_t stream, std::uint64_t index) const;
  LoadPrompt from_trace(std::size_t index) const;

  PromptOptions options_;
};

// A word a token, for servers that take text only; equal tokens give equal words. How many tokens the server's
// tokenizer makes of it, only its `usage` tells.
std::string words_of(const std::vector<std::uint32_t>& tokens);

}  // namespace nmc::lab
