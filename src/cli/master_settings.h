// The flags of `mooncake_master`: those that this master acts on, and the others that command lines written for
// Mooncake's own master may carry.
#pragma once

#include <vector>

#include "cli/setting.h"

namespace nmc::cli {

std::vector<Setting> master_settings();

}  // namespace nmc::cli
