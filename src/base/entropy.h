// Random bits of the machine's own, for seeds and for names that must not collide. What must be the same at every run
// is drawn from base/rng.h.
#pragma once

#include <cstdint>

namespace nmc {

// Thread-safe.
std::uint64_t machine_random();

}  // namespace nmc
