#include "lab/likelihood.h"

#include <cmath>

#include "lab/one_request.h"

namespace nmc::lab {

double Likelihood::total() const {
  double sum = 0;
  for (const float logprob : logprobs) sum += logprob;
  return sum;
}

double Likelihood::per_token() const { return total() / static_cast<double>(logprobs.size()); }

double Likelihood::perplexity() const { return std::exp(-per_token()); }

Result<Likelihood> measure_likelihood(engine::Runtime& runtime, const std::string& id,
                                      std::span<const engine::TokenId> tokens, std::size_t given) {
  if (given < 1 || given >= tokens.size()) {
    return invalid_argument("{} of {} tokens are given, expected at least 1 and fewer than all", given, tokens.size());
  }
  engine::GenerateRequest request;
  request.id = id;
  request.prompt.assign(tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(given));
  request.forced.assign(tokens.begin() + static_cast<std::ptrdiff_t>(given), tokens.end());
  request.max_tokens = request.forced.size();
  request.ignore_eos = true;
  request.logprobs = 0;
  NMC_ASSIGN_OR_RETURN(const Completion completion, run_request(runtime, std::move(request)));
  Likelihood likelihood{.logprobs = {}, .metrics = completion.metrics};
  for (const engine::SampledToken& token : completion.sampled) likelihood.logprobs.push_back(token.logprobs[0].logprob);
  return likelihood;
}

}  // namespace nmc::lab
