// `nano-mooncake config`: what is in effect and why.
#include "cli/command.h"
#include "cli/exit_code.h"
#include "cli/output.h"
#include "cli/serving_settings.h"

namespace nmc::cli {
namespace {

constexpr const char* kHidden = "(set)";

bool is_hidden(const EffectiveValue& value) {
  return value.setting.secret && !std::holds_alternative<std::monostate>(value.value);
}

Report make_report(const Settings& settings) {
  Report report;
  report.json = {{"schema", "nano-mooncake/config/v1"}, {"settings", Json::object()}};
  report.table.columns = {"setting", "value", "origin", "from"};
  for (const EffectiveValue& value : settings.all()) {
    if (value.setting.source == Source::kFlagOnly) continue;
    const bool hidden = is_hidden(value);
    report.json["settings"][key_name(value.setting)] = {
        {"value", hidden ? Json(kHidden) : json_from_value(value.value)},
        {"origin", origin_name(value.origin)},
        {"from", value.where.empty() ? Json(nullptr) : Json(value.where)},
    };
    report.table.rows.push_back({key_name(value.setting), hidden ? kHidden : text_from_value(value.value),
                                 origin_name(value.origin), value.where});
  }
  return report;
}

Result<int> run(const Settings& settings) {
  NMC_RETURN_IF_ERROR(write_report(make_report(settings), settings));
  return kExitDone;
}

}  // namespace

Command config_command() {
  Command command{
      .name = "config",
      .summary = "the effective configuration and where each value came from",
      .purpose =
          "Reads flags, environment and --config FILE as nano-mooncake api would, checks every value, and prints each "
          "setting with its value and origin. Starts nothing. Secrets are not shown.",
      .settings = serving_settings(),
      .exit_codes = {kExitDone, kExitWrongInput, kExitNotDone},
      .example = "NANO_MOONCAKE_DRAM_BYTES=4GiB nano-mooncake config --format json",
      .run = run,
  };
  for (Setting& setting : report_settings()) command.settings.push_back(std::move(setting));
  return command;
}

}  // namespace nmc::cli
