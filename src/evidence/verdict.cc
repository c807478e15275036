#include "evidence/verdict.h"

namespace nmc::evidence {

std::string_view verdict_name(Verdict verdict) {
  switch (verdict) {
    case Verdict::kPass: return "pass";
    case Verdict::kFail: return "fail";
    case Verdict::kInsufficient: break;
  }
  return "insufficient_evidence";
}

Verdict both(Verdict a, Verdict b) {
  if (a == Verdict::kFail || b == Verdict::kFail) return Verdict::kFail;
  return a == Verdict::kPass ? b : a;
}

}  // namespace nmc::evidence
