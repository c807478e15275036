// What this binary is.
#pragma once

#include <string>

namespace nmc {

struct BuildInfo {
  const char* version;     // "0.1.0"
  const char* commit;      // short hash, "unknown" outside a git checkout; "+dirty" when the tree had changes
  const char* build_type;  // "Release", ...
};

BuildInfo build_info();

}  // namespace nmc
