// What this binary is.
#pragma once

#include <string>

namespace nmc {

struct BuildInfo {
  const char* version;        // "0.1.0"
  const char* commit;         // short hash, "unknown" outside a git checkout; "+dirty" when the tree had changes
  const char* build_type;     // "Release", ...
  const char* source_digest;  // SHA-256 over all files of the source tree, 64 hex digits; "unknown" outside a checkout
  const char* compiler;       // "GNU 12.2.0"
};

BuildInfo build_info();

}  // namespace nmc
