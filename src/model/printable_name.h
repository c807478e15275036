// Names out of a file, in messages.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/json.h"

namespace nmc::model {

// Quoted and safe to print, whatever bytes it holds; cut where it is long.
inline std::string printable_name(std::string_view name) { return describe_json(Json(name), 200); }

}  // namespace nmc::model
