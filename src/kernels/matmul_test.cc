#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "kernels/kernels.h"
#include "kernels/test_support.h"

namespace nmc::kernels {
namespace {

// A random W in checkpoint order and in panels.
class Weights {
 public:
  Weights(std::size_t n, std::size_t k, Dtype dtype, std::uint64_t seed = 7)
      : n_(n), k_(k), rows_(narrowed(random_floats(n * k, seed), dtype)), panels_(packed_bytes(n, k, dtype) / 64 + 1) {
    ThreadPool pool(1);
    auto* const data = reinterpret_cast<std::byte*>(panels_.data());
    pack_matrix(pool, rows_.data(), dtype, n, k, data, dtype, 0, n);
    packed_ = {data, n, k, dtype};
  }
  const PackedMatrix& packed() const { return packed_; }
  double at(std::size_t column, std::size_t i) const { return element(rows_, packed_.dtype, column * k_ + i); }
  std::size_t n() const { return n_; }
  std::size_t k() const { return k_; }

 private:
  struct alignas(64) Line {
    std::byte bytes[64];
  };
  std::size_t n_, k_;
  std::vector<std::byte> rows_;
  std::vector<Line> panels_;
  PackedMatrix packed_;
};

std::vector<float> product(ThreadPool& pool, std::span<const float> x, const Weights& w) {
  const std::size_t rows = x.size() / w.k();
  std::vector<float> y(rows * w.n(), NAN);
  matmul(pool, x.data(), rows, w.packed(), y.data(), w.n());
  return y;
}

using MatmulTest = EachTarget;
NMC_FOR_EACH_TARGET(MatmulTest);

TEST_P(MatmulTest, AgreesWithDoublePrecision) {
  ThreadPool pool(2);
  for (const Dtype dtype : kAllDtypes) {
    for (const std::size_t rows : {1, 2, 3, 4, 5, 12, 13, 50}) {
      for (const auto& [n, k] :
           {std::pair<std::size_t, std::size_t>{1, 1}, {31, 7}, {32, 64}, {33, 255}, {100, 257}, {288, 513}}) {
        const Weights w(n, k, dtype);
        const std::vector<float> x = random_floats(rows * k, 11);
        const std::vector<float> y = product(pool, x, w);
        for (std::size_t r = 0; r < rows; ++r) {
          for (std::size_t c = 0; c < n; ++c) {
            double sum = 0, magnitude = 0;
            for (std::size_t i = 0; i < k; ++i) {
              const double term = double{x[r * k + i]} * w.at(c, i);
              sum += term;
              magnitude += std::abs(term);
            }
            // A chain of k roundings, each at most 2^-24 of the partial sum (twice that where products round, too).
            ASSERT_NEAR(y[r * n + c], sum, 2.0 * static_cast<double>(k) * 0x1p-24 * magnitude + 1e-30)
                << matmul_kernel_name(rows, dtype) << " n=" << n << " k=" << k << " row " << r << " column " << c;
          }
        }
      }
    }
  }
}

// One step of the chain: fused, but for the plain fallback.
float multiply_add(std::int64_t target, float x, float w, float sum) {
  if (target != HWY_SCALAR && target != HWY_EMU128) return std::fma(x, w, sum);
  const volatile float product = x * w;  // rounded here, whatever the compiler would like to fuse
  return product + sum;
}

TEST_P(MatmulTest, ElementsAreOneChainInTheOrderOfK) {
  ThreadPool pool(1);
  for (const Dtype dtype : kAllDtypes) {
    for (const std::size_t rows : {1, 2, 3, 4, 7, 12, 25}) {
      const Weights w(70, 601, dtype);
      const std::vector<float> x = random_floats(rows * w.k(), 3);
      const std::vector<float> y = product(pool, x, w);
      for (std::size_t r = 0; r < rows; ++r) {
        for (std::size_t c = 0; c < w.n(); ++c) {
          float chain = 0;
          for (std::size_t i = 0; i < w.k(); ++i) {
            chain = multiply_add(GetParam(), x[r * w.k() + i], static_cast<float>(w.at(c, i)), chain);
          }
          ASSERT_EQ(y[r * w.n() + c], chain)
              << dtype_name(dtype) << " rows " << rows << " row " << r << " column " << c;
        }
      }
    }
  }
}

TEST_P(MatmulTest, RowsHaveTheSameBitsInAnyBatchOnAnyThreads) {
  constexpr std::size_t kMost = 260;
  const bool slow = GetParam() == HWY_SCALAR || GetParam() == HWY_EMU128;
  std::vector<std::size_t> batches;
  for (std::size_t rows = 1; rows <= 40; ++rows) batches.push_back(rows);
  for (std::size_t rows = 63; rows <= 65; ++rows) batches.push_back(rows);
  for (std::size_t rows = 95; rows <= 130; rows += slow ? 7 : 1) batches.push_back(rows);
  for (const std::size_t rows : {239, 240, 241, 242, 255, 256, 257}) batches.push_back(rows);

  ThreadPool pools[] = {ThreadPool(1), ThreadPool(2), ThreadPool(3)};
  std::set<std::string> kernels;
  for (const Dtype dtype : kAllDtypes) {
    for (const auto& [n, k] : {std::pair<std::size_t, std::size_t>{75, 261}, {288, 33}, {1, 515}}) {
      const Weights w(n, k, dtype);
      const std::vector<float> x = random_floats(kMost * k, 5);
      std::vector<float> alone(kMost * n);
      for (std::size_t r = 0; r < kMost; ++r) matmul(pools[0], &x[r * k], 1, w.packed(), &alone[r * n], n);
      for (const std::size_t rows : batches) {
        kernels.insert(matmul_kernel_name(rows, dtype));
        for (ThreadPool& pool : pools) {
          const std::size_t first = (rows * 7) % (kMost - rows + 1);
          const auto y = product(pool, std::span(x).subspan(first * k, rows * k), w);
          ASSERT_TRUE(same_bits(y, std::span(alone).subspan(first * n, rows * n)))
              << matmul_kernel_name(rows, dtype) << " n=" << n << " k=" << k << " threads " << pool.size();
        }
      }
    }
  }
  EXPECT_GE(kernels.size(), 3 * 25) << "the batches no longer cross enough tile shapes";
}

TEST_P(MatmulTest, WritesNothingBesideItsColumns) {
  ThreadPool pool(2);
  for (const std::size_t rows : {1, 3, 9, 30}) {
    const Weights w(41, 20, Dtype::kBf16);
    const std::size_t stride = 50;
    const std::vector<float> x = random_floats(rows * w.k(), 9);
    std::vector<float> y(rows * stride, 123.0f);
    matmul(pool, x.data(), rows, w.packed(), y.data(), stride);
    const std::vector<float> dense = product(pool, x, w);
    for (std::size_t r = 0; r < rows; ++r) {
      EXPECT_TRUE(same_bits(std::span(y).subspan(r * stride, 41), std::span(dense).subspan(r * 41, 41)));
      EXPECT_THAT(std::vector<float>(&y[r * stride + 41], &y[r * stride + 41] + 9), testing::Each(123.0f));
    }
  }
}

TEST_P(MatmulTest, NothingToReduceGivesZeros) {
  ThreadPool pool(1);
  const PackedMatrix empty{nullptr, 5, 0, Dtype::kBf16};
  std::vector<float> y(15, 1.0f);
  matmul(pool, nullptr, 3, empty, y.data(), 5);
  EXPECT_THAT(y, testing::Each(0.0f));
}

TEST_P(MatmulTest, KernelNamesSayLevelTypeAndTile) {
  EXPECT_THAT(matmul_kernel_name(1, Dtype::kBf16), testing::EndsWith("_bf16_direct1"));
  EXPECT_THAT(matmul_kernel_name(256, Dtype::kF16), testing::HasSubstr("_f16_tile"));
  EXPECT_NE(matmul_kernel_name(16, Dtype::kF32), matmul_kernel_name(64, Dtype::kF32));
}

}  // namespace
}  // namespace nmc::kernels
