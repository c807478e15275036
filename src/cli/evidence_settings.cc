#include "cli/evidence_settings.h"

namespace nmc::cli {

Setting index_setting(std::string help) {
  return {.name = "index",
          .placeholder = "FILE",
          .default_text = "results/index.jsonl",
          .help = std::move(help),
          .source = Source::kFlagOnly};
}

std::vector<Setting> with_common_settings(std::vector<Setting> own, bool rows) {
  static constexpr std::string_view kServingFlags[] = {"log-level"};
  for (Setting& setting : rows ? report_settings() : std::vector{quiet_setting()}) own.push_back(std::move(setting));
  for (Setting& setting : serving_settings_for(kServingFlags)) own.push_back(std::move(setting));
  return own;
}

}  // namespace nmc::cli
