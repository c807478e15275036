// The shared token of a store's TCP port: its master asks for it, its clients prove to have it.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "cli/settings.h"

namespace nmc::cli {

// NANO_MOONCAKE_TOKEN and --token-file.
std::vector<Setting> token_settings();

// "": none is set. Errors name the file.
Result<std::string> token_of(const Settings& settings);

}  // namespace nmc::cli
