#include "engine/make_sequence.h"

namespace nmc::engine {

std::unique_ptr<Sequence> make_sequence(GenerateRequest request, std::span<const TokenId> generated,
                                        const PrefixCache* cache, const RuntimeOptions& options) {
  auto sequence = std::make_unique<Sequence>();
  sequence->tokens = request.prompt;
  sequence->tokens.insert(sequence->tokens.end(), generated.begin(), generated.end());
  sequence->metrics.prompt_tokens = sequence->metrics.computed_tokens = request.prompt.size();
  sequence->cancel = std::make_shared<CancelToken>();
  sequence->submitted = options.clock->now();
  if (cache != nullptr) sequence->chain = cache->chain(request, sequence->tokens);
  sequence->ending_ids = ending_ids(request, options.eos_ids);
  sequence->request = std::move(request);
  return sequence;
}

}  // namespace nmc::engine
