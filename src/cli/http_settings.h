// Limits and access of the API's connections.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "cli/setting.h"
#include "cli/settings.h"
#include "http/server.h"

namespace nmc::cli {

std::vector<Setting> http_settings();

// "ORIGIN,ORIGIN"; nullopt when one of them is none.
std::optional<std::vector<std::string>> parse_origin_list(std::string_view text);

// What those settings, host, port, key, timeouts and the model's name say. Fails when --api-key-file can't be read.
// Adapters are the caller's.
Result<http::ServerOptions> http_options_of(const Settings& settings);

}  // namespace nmc::cli
