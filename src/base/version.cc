#include "base/version.h"

#include "nmc_version.inc"  // generated at build time: NMC_VERSION, NMC_COMMIT, NMC_BUILD_TYPE, NMC_SOURCE_DIGEST

namespace nmc {

namespace {

#if defined(__clang__)
constexpr const char* kCompiler = "Clang " __clang_version__;
#else
constexpr const char* kCompiler = "GNU " __VERSION__;
#endif

}  // namespace

BuildInfo build_info() { return {NMC_VERSION, NMC_COMMIT, NMC_BUILD_TYPE, NMC_SOURCE_DIGEST, kCompiler}; }

}  // namespace nmc
