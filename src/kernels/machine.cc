#include "kernels/targets.h"
// Compiled once for each instruction set.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/machine.cc"
#include "hwy/foreach_target.h"
//
#include <algorithm>
#include <chrono>
#include <utility>

#include "base/check.h"
#include "base/syscall.h"
#include "kernels/kernels.h"
#include "kernels/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace nmc::kernels::HWY_NAMESPACE {

const char* level_name() { return hwy::TargetName(HWY_TARGET); }

// Chains of multiply-adds that don't wait for each other; returns their sum, so that none can be left out.
inline constexpr std::size_t kChains = 12;
float run_chains(std::size_t steps) {
  const F32 f32;
  const auto factor = hn::Set(f32, 0.999f);
  const auto addend = hn::Set(f32, 0.001f);
  VF chain[kChains];
  NMC_UNROLL
  for (std::size_t i = 0; i < kChains; ++i) chain[i] = hn::Set(f32, static_cast<float>(i));
  for (std::size_t step = 0; step < steps; ++step) {
    NMC_UNROLL
    for (std::size_t i = 0; i < kChains; ++i) chain[i] = hn::MulAdd(chain[i], factor, addend);
  }
  auto sum = hn::Zero(f32);
  NMC_UNROLL
  for (std::size_t i = 0; i < kChains; ++i) sum = hn::Add(sum, chain[i]);
  return hn::GetLane(hn::SumOfLanes(f32, sum));
}

double flops_per_step() { return 2.0 * kChains * kLanes; }

// Reads `bytes` (a multiple of 1024) and returns a digest of them, so that no load can be left out.
std::uint32_t read_all(const std::byte* data, std::size_t bytes) {
  const U32 u32;
  auto a = hn::Zero(u32), b = hn::Zero(u32), c = hn::Zero(u32), d = hn::Zero(u32);
  constexpr std::size_t kVector = kLanes * sizeof(std::uint32_t);
  for (std::size_t at = 0; at < bytes; at += 4 * kVector) {
    const auto* const words = reinterpret_cast<const std::uint32_t*>(data + at);
    hwy::Prefetch(data + at + 1024);
    a = hn::Xor(a, hn::Load(u32, words));
    b = hn::Xor(b, hn::Load(u32, words + kLanes));
    c = hn::Xor(c, hn::Load(u32, words + 2 * kLanes));
    d = hn::Xor(d, hn::Load(u32, words + 3 * kLanes));
  }
  return hn::GetLane(hn::MaxOfLanes(u32, hn::Xor(hn::Xor(a, b), hn::Xor(c, d))));
}

}  // namespace nmc::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace nmc::kernels {
namespace {

HWY_EXPORT(level_name);
HWY_EXPORT(run_chains);
HWY_EXPORT(flops_per_step);
HWY_EXPORT(read_all);

// Best round of about 0.3 s of short ones.
template <typename Work>
double best_seconds(Work&& work) {
  using Clock = std::chrono::steady_clock;
  const auto end = Clock::now() + std::chrono::milliseconds(300);
  auto best = Clock::duration::max();
  for (int round = 0; round < 3 || Clock::now() < end; ++round) {
    const auto start = Clock::now();
    work();
    best = std::min(best, Clock::now() - start);
  }
  return std::chrono::duration<double>(best).count();
}

// Windows are short, so that on a busy machine some are undisturbed, and each is cold: the others evict it.
double measure_read_gb_s(ThreadPool& pool) {
  constexpr std::size_t kBytes = std::size_t{320} << 20;
  constexpr std::size_t kWindow = std::size_t{64} << 20;
  constexpr std::size_t kPiece = std::size_t{1} << 20;
  auto buffer = Mapping::anonymous(kBytes);
  if (!buffer) return 0;
  std::byte* const data = buffer->data();
  pool.parallel_for(kBytes, kPiece, [&](std::size_t begin, std::size_t end, int) {
    std::fill(data + begin, data + end, std::byte{1});
  });
  std::size_t window = 0;
  const double seconds = best_seconds([&] {
    pool.parallel_for(kWindow, kPiece, [&](std::size_t begin, std::size_t end, int) {
      const std::uint32_t digest = HWY_DYNAMIC_DISPATCH(read_all)(data + window + begin, end - begin);
      NMC_ASSERT(digest == 0, "digest={}", digest);  // each word occurs an even number of times
    });
    window = (window + kWindow) % kBytes;
  });
  return static_cast<double>(kWindow) / seconds / 1e9;
}

double measure_f32_gflop_s(ThreadPool& pool) {
  constexpr std::size_t kSteps = 100'000;  // about half a millisecond
  const auto threads = static_cast<std::size_t>(pool.size());
  const double seconds = best_seconds([&] {
    pool.parallel_for(threads, 1, [&](std::size_t, std::size_t, int) {
      const float sum = HWY_DYNAMIC_DISPATCH(run_chains)(kSteps);
      NMC_ASSERT(sum > 0, "sum={}", sum);
    });
  });
  return HWY_DYNAMIC_DISPATCH(flops_per_step)() * static_cast<double>(kSteps * threads) / seconds / 1e9;
}

}  // namespace

std::string instruction_level() { return HWY_DYNAMIC_DISPATCH(level_name)(); }

MachineLimits measure_machine(ThreadPool& pool) { return {measure_read_gb_s(pool), measure_f32_gflop_s(pool)}; }

}  // namespace nmc::kernels
#endif  // HWY_ONCE
