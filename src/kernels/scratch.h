// Memory that a thread keeps from call to call, for tiles and staged blocks.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <memory>

#include "base/check.h"

namespace nmc::kernels {

// Not thread-safe; meant to be thread_local. Only grows.
class Scratch {
 public:
  // At least `floats` floats, aligned to 64 bytes. Contents are unspecified, except that they were zero at first.
  // Earlier pointers end with a call that grows.
  float* reserve(std::size_t floats) {
    if (floats > size_) grow(floats);
    return data_.get();
  }

 private:
  struct Free {
    void operator()(float* data) const { std::free(data); }
  };

  void grow(std::size_t floats) {
    const std::size_t rounded = (std::max(floats, size_ + size_ / 2) + 1023) / 1024 * 1024;
    data_.reset();
    data_.reset(static_cast<float*>(std::aligned_alloc(64, rounded * sizeof(float))));
    NMC_ASSERT(data_ != nullptr, "floats={}", rounded);
    std::fill_n(data_.get(), rounded, 0.0f);
    size_ = rounded;
  }

  std::unique_ptr<float, Free> data_;
  std::size_t size_ = 0;
};

}  // namespace nmc::kernels
