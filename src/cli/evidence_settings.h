// Settings that the commands about evidence have in common.
#pragma once

#include "cli/serving_settings.h"
#include "cli/setting.h"

namespace nmc::cli {

// --index results/index.jsonl; `help` says what the command does with it.
Setting index_setting(std::string help);

// `own` and what every command takes: --quiet and the log level; with `rows` also --format and --output.
std::vector<Setting> with_common_settings(std::vector<Setting> own, bool rows);

}  // namespace nmc::cli
