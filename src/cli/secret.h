// Secrets that stand in a setting or, out of others' sight, in a file.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "cli/settings.h"

namespace nmc::cli {

// The value of the setting `name` or, without one, what the file that `file_name` names holds but for white space
// around it; "" when neither is set. An empty file is an error, which says that `what` ("a token") was expected.
Result<std::string> secret_of(const Settings& settings, std::string_view name, std::string_view file_name,
                              std::string_view what);

}  // namespace nmc::cli
