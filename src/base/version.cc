#include "base/version.h"

#include "nmc_version.inc"  // generated at build time: NMC_VERSION, NMC_COMMIT, NMC_BUILD_TYPE

namespace nmc {

BuildInfo build_info() { return {NMC_VERSION, NMC_COMMIT, NMC_BUILD_TYPE}; }

}  // namespace nmc
