#include "base/check.h"

#include <cstdio>
#include <cstdlib>

namespace nmc {

void check_failed(const char* kind, const char* expression, const char* file, int line, const std::string& detail) {
  std::fprintf(stderr, "%s:%d: %s failed: %s%s%s\n", file, line, kind, expression, detail.empty() ? "" : ": ",
               detail.c_str());
  std::fflush(stderr);
  std::abort();
}

}  // namespace nmc
