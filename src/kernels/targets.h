// Which instruction sets the kernels are compiled for. Include before any header of Highway, in every file that uses
// it, so that all agree. Left out: sets without fused multiply-add, which the plain fallback serves as well, and those
// with vectors of unknown length, which can't be kept in arrays of registers.
#pragma once

#define HWY_WANT_AVX3_DL
#if defined(NMC_SANITIZED)  // AVX3's kernels are those of AVX3_DL
#define HWY_DISABLED_TARGETS \
  (HWY_AVX3 | HWY_SSSE3 | HWY_SSE4 | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
#else
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
#endif

#include "hwy/detect_targets.h"
