// Verdicts of gates, and what explains them, as commands print them.
#pragma once

#include "cli/output.h"
#include "evidence/acceptance.h"
#include "evidence/budget.h"
#include "evidence/bundle.h"
#include "evidence/fault_budget.h"

namespace nmc::cli {

Report pressure_report(const evidence::PressureVerdict& verdict);
Report fault_report(const evidence::FaultVerdict& verdict);
Report acceptance_report(const evidence::Acceptance& acceptance);
Report verification_report(const evidence::BundleVerification& verification, const std::string& path);

}  // namespace nmc::cli
