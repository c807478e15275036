// Settings that the commands about evidence have in common.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "cli/serving_settings.h"
#include "cli/setting.h"
#include "cli/settings.h"
#include "evidence/bundle.h"
#include "evidence/cohort.h"
#include "evidence/registry.h"
#include "evidence/verdict.h"

namespace nmc::cli {

// --index results/index.jsonl; `help` says what the command does with it.
Setting index_setting(std::string help);

// `own` and what every command takes: --quiet and the log level; with `rows` also --format and --output.
std::vector<Setting> with_common_settings(std::vector<Setting> own, bool rows);

// The same for a command that judges or explains: --output gets JSON whatever --format says (write_verdict()).
std::vector<Setting> with_verdict_settings(std::vector<Setting> own);

// --budget and --profile, of a gate or an explanation.
Setting budget_setting();
Setting profile_setting(std::string name = "profile");

// What a bundle is made of beside verdicts: --pressure-profile, --workloads (the built-in ones by default), and a
// registry and a budget that the caller names.
Result<evidence::BundleInput> bundle_input_of(const Settings& settings, Path index, std::string budget);

// The runs of --index. Records that can't be used are told of on standard error.
Result<evidence::History> history_of(const Settings& settings);
// A cohort of its runs; kNotFound for an index without one that can be judged.
Result<evidence::Cohort> cohort_of(const evidence::History& history, const Settings& settings);

int exit_code_of(evidence::Verdict verdict);

// For a command that judges but has nothing to judge: says why and what supplies it; kExitInsufficientEvidence.
int without_evidence(std::string_view why, const Settings& settings);

}  // namespace nmc::cli
