#include "base/entropy.h"

#include <random>

namespace nmc {

std::uint64_t machine_random() {
  std::random_device device;
  return std::uint64_t{device()} << 32 | device();
}

}  // namespace nmc
