// Rates of the kernels beside the machine's own limits, one line a case: the best of several rounds, since other work
// on the machine can only make a round slower.
//
//   kernels_bench [--threads N] [--seconds S] [--dtype bf16|f16|f32] [--clock wall|cpu]
//
// Products run over a set of matrices larger than any cache, as the layers of a model are; attention over its own
// cache.
// `--clock cpu` counts the calling thread's CPU time, for a busy machine; it means something with one thread only.
#include <fmt/core.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <string>
#include <vector>

#include "base/rng.h"
#include "base/syscall.h"
#include "kernels/kernels.h"

namespace nmc::kernels {
namespace {

struct Options {
  int threads = available_cpus();
  double seconds = 0.4;  // for each case
  Dtype dtype = Dtype::kBf16;
  clockid_t clock = CLOCK_MONOTONIC;
};

double now(clockid_t clock) {
  timespec time;
  clock_gettime(clock, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

// Calls work(round) over and over; the best round counts.
template <typename Work>
double best_seconds(const Options& options, Work&& work) {
  const double end = now(CLOCK_MONOTONIC) + options.seconds;
  double best = 1e9;
  for (std::size_t round = 0; round < 3 || now(CLOCK_MONOTONIC) < end; ++round) {
    const double start = now(options.clock);
    work(round);
    best = std::min(best, now(options.clock) - start);
  }
  return best;
}

std::vector<float> random_floats(std::size_t count) {
  std::vector<float> values(count);
  Rng rng(1);
  for (float& value : values) value = static_cast<float>(rng.unit() - 0.5);
  return values;
}

// Memory as the model has it: whole pages from the OS.
Mapping memory(std::size_t bytes) {
  auto mapping = Mapping::anonymous(bytes);
  if (!mapping) {
    fmt::print(stderr, "{}\n", mapping.error().message);
    std::exit(1);
  }
  return std::move(*mapping);
}

void bench_matmul(ThreadPool& pool, const Options& options, const MachineLimits& limits, std::size_t n, std::size_t k) {
  const std::size_t bytes = packed_bytes(n, k, options.dtype);
  const std::size_t copies = std::max<std::size_t>(1, (std::size_t{384} << 20) / bytes);
  Mapping weights = memory(copies * bytes);
  pack_matrix(pool, random_floats(n * k).data(), Dtype::kF32, n, k, weights.data(), options.dtype, 0, n);
  for (std::size_t copy = 1; copy < copies; ++copy) std::memcpy(weights.data() + copy * bytes, weights.data(), bytes);
  constexpr std::size_t kRows[] = {1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32, 48, 64, 96, 128, 256, 512, 1024};
  const std::vector<float> x = random_floats(1024 * k);
  std::vector<float> y(1024 * n);
  for (const std::size_t rows : kRows) {
    const double seconds = best_seconds(options, [&](std::size_t round) {
      matmul(pool, x.data(), rows, {weights.data() + round % copies * bytes, n, k, options.dtype}, y.data(), n);
    });
    const double gflop_s = 2.0 * static_cast<double>(rows * n * k) / seconds / 1e9;
    const double gb_s = static_cast<double>(bytes) / seconds / 1e9;
    const double bound = std::max(gflop_s / limits.f32_gflop_s, gb_s / limits.read_gb_s);
    fmt::print("matmul {:5} x {:5}  rows {:5}  {:9.1f} us  {:6.1f} GFLOP/s  {:6.1f} GB/s  {:4.2f} of the bound  {}\n",
               n, k, rows, seconds * 1e6, gflop_s, gb_s, bound, matmul_kernel_name(rows, options.dtype));
  }
}

// `streams` sequences with `context` positions before `rows` new ones.
void bench_attention(ThreadPool& pool, const Options& options, const MachineLimits& limits,
                     const PagedGeometry& geometry, std::size_t streams, std::size_t context, std::size_t rows) {
  const std::size_t blocks = (context + rows + geometry.block_tokens - 1) / geometry.block_tokens;
  Mapping cache = memory(streams * blocks * geometry.span_bytes());
  std::vector<std::byte*> addresses(streams * blocks);
  for (std::size_t i = 0; i < addresses.size(); ++i) {
    addresses[(i * 7919) % addresses.size()] = cache.data() + i * geometry.span_bytes();
  }
  const std::size_t q_width = geometry.heads * geometry.head_dim;
  const std::size_t kv_width = geometry.kv_heads * geometry.head_dim;
  const std::vector<float> kv = random_floats((context + rows) * kv_width), q = random_floats(streams * rows * q_width);
  std::vector<float> out(q.size());
  std::vector<AttentionTask> tasks;
  for (std::size_t i = 0; i < streams; ++i) {
    write_kv(geometry, kv.data(), kv.data(), kv_width, context + rows, 0, &addresses[i * blocks]);
    tasks.push_back(
        {&q[i * rows * q_width], q_width, &out[i * rows * q_width], q_width, rows, context, &addresses[i * blocks]});
  }
  const double seconds = best_seconds(options, [&](std::size_t) { paged_attention(pool, geometry, tasks, 0.125f, 0); });
  const double keys = static_cast<double>(rows) * (static_cast<double>(context) + (static_cast<double>(rows) + 1) / 2);
  const double gflop_s = 4.0 * keys * static_cast<double>(q_width * streams) / seconds / 1e9;
  const double gb_s = static_cast<double>(cache.size()) / seconds / 1e9;
  fmt::print(
      "attention {}/{} heads of {}  streams {:3}  context {:6}  rows {:5}  {:9.1f} us  {:6.1f} GFLOP/s  {:6.1f} GB/s  "
      "{:4.2f} of the bound\n",
      geometry.heads, geometry.kv_heads, geometry.head_dim, streams, context, rows, seconds * 1e6, gflop_s, gb_s,
      std::max(gflop_s / limits.f32_gflop_s, gb_s / limits.read_gb_s));
}

void bench_rows(ThreadPool& pool, const Options& options, std::size_t rows, std::size_t dim) {
  const std::vector<float> x = random_floats(2 * rows * dim), weight = random_floats(dim);
  std::vector<float> out(rows * dim);
  const auto report = [&](const char* name, double seconds) {
    fmt::print("{:12} {:5} x {:5}  {:9.2f} us  {:6.2f} ns/1000 elements\n", name, rows, dim, seconds * 1e6,
               seconds * 1e12 / static_cast<double>(rows * dim));
  };
  report("rms_norm", best_seconds(options, [&](std::size_t) {
           rms_norm(pool, x.data(), rows, dim, weight.data(), 1e-5f, out.data());
         }));
  report("silu_mul", best_seconds(options, [&](std::size_t) { silu_mul(pool, x.data(), rows, dim, out.data()); }));
  report("add_in_place",
         best_seconds(options, [&](std::size_t) { add_in_place(pool, out.data(), x.data(), rows * dim); }));
}

void bench_write(ThreadPool&, const Options& options, const PagedGeometry& geometry, std::size_t rows) {
  Mapping cache = memory((rows / geometry.block_tokens + 1) * geometry.span_bytes());
  std::vector<std::byte*> blocks;
  for (std::size_t at = 0; at < cache.size(); at += geometry.span_bytes()) blocks.push_back(cache.data() + at);
  const std::size_t width = geometry.kv_heads * geometry.head_dim;
  const std::vector<float> kv = random_floats(rows * width);
  const double seconds = best_seconds(
      options, [&](std::size_t) { write_kv(geometry, kv.data(), kv.data(), width, rows, 0, blocks.data()); });
  fmt::print("write_kv     {:5} rows of {}  {:9.2f} us  {:6.2f} ns/row\n", rows, width, seconds * 1e6,
             seconds * 1e9 / static_cast<double>(rows));
}

int run(const Options& options) {
#ifndef NDEBUG
  fmt::print("warning: built without optimisation or with assertions; figures mean nothing\n");
#endif
  ThreadPool pool(options.threads);
  const MachineLimits limits = measure_machine(pool);
  fmt::print("{}  {} threads  {:.1f} GB/s read  {:.1f} GFLOP/s f32\n", instruction_level(), pool.size(),
             limits.read_gb_s, limits.f32_gflop_s);
  bench_matmul(pool, options, limits, 11264, 2048);
  bench_matmul(pool, options, limits, 2560, 2048);
  bench_matmul(pool, options, limits, 2048, 5632);
  const PagedGeometry grouped{32, 4, 64, 16, options.dtype};
  const PagedGeometry plain{16, 16, 128, 16, options.dtype};
  for (const PagedGeometry& geometry : {grouped, plain}) {
    bench_attention(pool, options, limits, geometry, 1, 0, 1024);
    bench_attention(pool, options, limits, geometry, 1, 4096, 256);
    bench_attention(pool, options, limits, geometry, 1, 16384, 1);
    bench_attention(pool, options, limits, geometry, 32, 4096, 1);
    bench_attention(pool, options, limits, geometry, 8, 512, 1);
    bench_write(pool, options, geometry, 1024);
    bench_write(pool, options, geometry, 1);
  }
  for (const std::size_t rows : {1, 1024}) bench_rows(pool, options, rows, 2048);
  return 0;
}

int usage() {
  fmt::print(stderr, "usage: kernels_bench [--threads N] [--seconds S] [--dtype bf16|f16|f32] [--clock wall|cpu]\n");
  return 2;
}

int parse_and_run(int argc, char** argv) {
  Options options;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string flag = argv[i];
    if (flag == "--threads" && std::atoi(argv[i + 1]) > 0)
      options.threads = std::atoi(argv[i + 1]);
    else if (flag == "--seconds" && std::atof(argv[i + 1]) > 0)
      options.seconds = std::atof(argv[i + 1]);
    else if (flag == "--clock" && std::string(argv[i + 1]) == "cpu")
      options.clock = CLOCK_THREAD_CPUTIME_ID;
    else if (flag == "--clock" && std::string(argv[i + 1]) == "wall")
      options.clock = CLOCK_MONOTONIC;
    else if (const auto dtype = parse_dtype(argv[i + 1]); flag == "--dtype" && dtype)
      options.dtype = *dtype;
    else
      return usage();
  }
  return argc % 2 == 1 ? run(options) : usage();
}

}  // namespace
}  // namespace nmc::kernels

int main(int argc, char** argv) { return nmc::kernels::parse_and_run(argc, argv); }
