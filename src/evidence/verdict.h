// What a gate says. Evidence that is missing is a verdict of its own: it neither passes nor fails.
#pragma once

#include <string_view>

namespace nmc::evidence {

enum class Verdict { kPass, kFail, kInsufficient };

std::string_view verdict_name(Verdict verdict);  // "pass", "fail", "insufficient_evidence"

// Of two that both have to pass: a failure outweighs missing evidence, and that a pass.
Verdict both(Verdict a, Verdict b);

}  // namespace nmc::evidence
