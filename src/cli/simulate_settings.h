// The flags of `nano-mooncake simulate`.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "cli/setting.h"

namespace nmc::cli {

std::vector<Setting> simulate_settings();

// Flags that mean something only with a generated workload, and only where there is time.
std::span<const std::string_view> workload_flags();
std::span<const std::string_view> timed_flags();

}  // namespace nmc::cli
