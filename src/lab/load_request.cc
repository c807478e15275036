#include "lab/load_request.h"

namespace nmc::lab {

const char* load_outcome_name(LoadOutcome outcome) {
  switch (outcome) {
    case LoadOutcome::kOk: return "ok";
    case LoadOutcome::kError: return "error";
    case LoadOutcome::kRejected: return "rejected";
    case LoadOutcome::kTimeout: return "timeout";
    case LoadOutcome::kUnfinished: return "unfinished";
  }
  return "unknown";
}

double LoadRecord::itl_mean_ms() const {
  if (token_times.size() < 2) return 0;
  return to_ms(token_times.back() - token_times.front()) / static_cast<double>(token_times.size() - 1);
}

}  // namespace nmc::lab
