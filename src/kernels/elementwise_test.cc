#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "kernels/kernels.h"
#include "kernels/test_support.h"

namespace nmc::kernels {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr std::size_t kSizes[] = {1, 7, 8, 15, 16, 17, 63, 64, 100, 2048};

using ElementwiseTest = EachTarget;
NMC_FOR_EACH_TARGET(ElementwiseTest);

TEST_P(ElementwiseTest, RmsNormScalesEachRowByItsRootMeanSquare) {
  ThreadPool pool(2);
  for (const std::size_t dim : kSizes) {
    const std::size_t rows = 9;
    std::vector<float> x = random_floats(rows * dim, dim);
    const std::vector<float> weight = random_floats(dim, 2);
    std::vector<float> out(rows * dim);
    rms_norm(pool, x.data(), rows, dim, weight.data(), 1e-5f, out.data());
    for (std::size_t r = 0; r < rows; ++r) {
      double squares = 0;
      for (std::size_t i = 0; i < dim; ++i) squares += double{x[r * dim + i]} * x[r * dim + i];
      const double scale = 1 / std::sqrt(squares / static_cast<double>(dim) + 1e-5);
      for (std::size_t i = 0; i < dim; ++i) {
        const double expected = x[r * dim + i] * scale * weight[i];
        // All terms are positive: the sum is off by at most dim roundings, the root by half of that, the rest by 4.
        const double tolerance = std::abs(expected) * (static_cast<double>(dim) / 2 + 4) * 0x1p-24;
        ASSERT_NEAR(out[r * dim + i], expected, tolerance) << "dim " << dim;
      }
    }
    rms_norm(pool, x.data(), rows, dim, weight.data(), 1e-5f, x.data());
    EXPECT_TRUE(same_bits(x, out)) << "in place";
  }
}

TEST_P(ElementwiseTest, RowsHaveTheSameBitsInAnyBatch) {
  ThreadPool pools[] = {ThreadPool(1), ThreadPool(3)};
  for (const std::size_t dim : {48, 2048, 5000}) {
    const std::size_t rows = 40;
    const std::vector<float> x = random_floats(rows * 2 * dim, 1);
    const std::vector<float> weight = random_floats(dim, 2);
    std::vector<float> norm_alone(rows * dim), silu_alone(rows * dim), together(rows * dim);
    for (std::size_t r = 0; r < rows; ++r) {
      rms_norm(pools[0], &x[r * dim], 1, dim, weight.data(), 1e-6f, &norm_alone[r * dim]);
      silu_mul(pools[0], &x[2 * r * dim], 1, dim, &silu_alone[r * dim]);
    }
    for (ThreadPool& pool : pools) {
      rms_norm(pool, x.data(), rows, dim, weight.data(), 1e-6f, together.data());
      EXPECT_TRUE(same_bits(together, norm_alone));
      silu_mul(pool, x.data(), rows, dim, together.data());
      EXPECT_TRUE(same_bits(together, silu_alone));
    }
  }
}

TEST_P(ElementwiseTest, RmsNormHeadsNormsEachHeadByItself) {
  ThreadPool pool(1);
  for (const std::size_t dim : {2, 20, 64, 128}) {
    const std::size_t heads = 5;
    std::vector<float> x = random_floats(heads * dim, dim);
    const std::vector<float> weight = random_floats(dim, 3);
    std::vector<float> expected(heads * dim);
    rms_norm(pool, x.data(), heads, dim, weight.data(), 1e-6f, expected.data());
    rms_norm_heads(x.data(), heads, dim, weight.data(), 1e-6f);
    EXPECT_TRUE(same_bits(x, expected));
  }
}

TEST_P(ElementwiseTest, AddBiasAddsItToEveryRow) {
  ThreadPool pool(3);
  for (const std::size_t dim : kSizes) {
    const std::size_t rows = 37;
    std::vector<float> x = random_floats(rows * dim, 1);
    const std::vector<float> bias = random_floats(dim, 2);
    std::vector<float> expected = x;
    for (std::size_t i = 0; i < x.size(); ++i) expected[i] += bias[i % dim];
    add_bias(pool, x.data(), rows, dim, bias.data());
    EXPECT_TRUE(same_bits(x, expected));
  }
}

TEST_P(ElementwiseTest, AddRowsLeavesWhatLiesBetweenAlone) {
  ThreadPool pool(2);
  for (const std::size_t dim : kSizes) {
    const std::size_t rows = 11, stride = dim + 5;
    std::vector<float> x = random_floats(rows * stride, 1);
    const std::vector<float> y = random_floats(rows * dim, 2);
    std::vector<float> expected = x;
    for (std::size_t i = 0; i < y.size(); ++i) expected[i / dim * stride + i % dim] += y[i];
    add_rows(pool, x.data(), stride, y.data(), rows, dim);
    EXPECT_TRUE(same_bits(x, expected));
  }
}

TEST_P(ElementwiseTest, AddInPlaceAddsEveryElement) {
  ThreadPool pool(3);
  for (const std::size_t count : {std::size_t{0}, std::size_t{1}, std::size_t{33}, std::size_t{100'003}}) {
    std::vector<float> x = random_floats(count, 1);
    const std::vector<float> y = random_floats(count, 2);
    std::vector<float> expected = x;
    for (std::size_t i = 0; i < count; ++i) expected[i] += y[i];
    add_in_place(pool, x.data(), y.data(), count);
    EXPECT_TRUE(same_bits(x, expected));
  }
}

std::vector<float> silu(ThreadPool& pool, const std::vector<float>& gate) {
  std::vector<float> row = gate;
  row.resize(2 * gate.size(), 1.0f);
  std::vector<float> out(gate.size());
  silu_mul(pool, row.data(), 1, gate.size(), out.data());
  return out;
}

TEST_P(ElementwiseTest, SiluIsAccurateOverTheWholeRange) {
  ThreadPool pool(1);
  std::vector<float> gate;
  for (float x = -100; x <= 100; x += 0.01f) gate.push_back(x);
  const std::vector<float> out = silu(pool, gate);
  for (std::size_t i = 0; i < gate.size(); ++i) {
    const double expected = gate[i] / (1 + std::exp(-double{gate[i]}));
    // exp within 2e-7, two more roundings; far out results are below the smallest normal and may be clamped.
    ASSERT_NEAR(out[i], expected, std::abs(expected) * 4e-7 + 1e-35) << gate[i];
  }
}

TEST_P(ElementwiseTest, SiluKeepsSpecialValuesApart) {
  ThreadPool pool(1);
  const std::vector<float> out = silu(pool, {0.0f, kInfinity, kNan, 1.0f, -3e38f});
  EXPECT_EQ(out[0], 0.0f);
  EXPECT_EQ(out[1], kInfinity);
  EXPECT_TRUE(std::isnan(out[2]));
  EXPECT_NEAR(out[3], 0.7310586f, 1e-6f);
  EXPECT_TRUE(std::isfinite(out[4]));
}

// Lanes must not differ: the same value gives the same bits wherever it stands.
TEST_P(ElementwiseTest, ResultsDontDependOnThePlaceInTheRow) {
  ThreadPool pool(1);
  for (const float value : {0.3f, -2.7f, 11.0f}) {
    const std::vector<float> out = silu(pool, std::vector<float>(53, value));
    EXPECT_THAT(out, testing::Each(out[0]));
  }
}

TEST_P(ElementwiseTest, SiluMulMultipliesByTheUpHalf) {
  ThreadPool pool(2);
  for (const std::size_t dim : kSizes) {
    const std::vector<float> x = random_floats(3 * 2 * dim, 5);
    std::vector<float> out(3 * dim);
    silu_mul(pool, x.data(), 3, dim, out.data());
    for (std::size_t r = 0; r < 3; ++r) {
      for (std::size_t i = 0; i < dim; ++i) {
        const double gate = x[2 * r * dim + i], up = x[2 * r * dim + dim + i];
        const double expected = gate / (1 + std::exp(-gate)) * up;
        ASSERT_NEAR(out[r * dim + i], expected, std::abs(expected) * 5e-7);
      }
    }
  }
}

TEST_P(ElementwiseTest, RopeRotatesPairsHalfAHeadApart) {
  for (const std::size_t head_dim : {2, 6, 32, 48, 64, 80, 128}) {
    const std::size_t half = head_dim / 2, heads = 3;
    const std::vector<float> before = random_floats(heads * head_dim, 1);
    std::vector<float> x = before, cos(half), sin(half);
    for (std::size_t i = 0; i < half; ++i) {
      cos[i] = std::cos(0.1f * static_cast<float>(i + 1));
      sin[i] = std::sin(0.1f * static_cast<float>(i + 1));
    }
    rope_in_place(x.data(), heads, head_dim, cos.data(), sin.data());
    for (std::size_t head = 0; head < heads; ++head) {
      for (std::size_t i = 0; i < half; ++i) {
        const std::size_t at = head * head_dim + i;
        const double a = before[at], b = before[at + half];
        ASSERT_NEAR(x[at], a * cos[i] - b * sin[i], 2e-7) << "head_dim " << head_dim;
        ASSERT_NEAR(x[at + half], b * cos[i] + a * sin[i], 2e-7) << "head_dim " << head_dim;
      }
    }
  }
}

TEST_P(ElementwiseTest, GatherRowWidensExactly) {
  for (const Dtype dtype : kAllDtypes) {
    for (const std::size_t dim : kSizes) {
      const std::vector<std::byte> table = narrowed(random_floats(5 * dim, 3), dtype);
      for (const std::size_t id : {0, 4}) {
        std::vector<float> out(dim);
        gather_row(table.data(), dtype, id, dim, out.data());
        for (std::size_t i = 0; i < dim; ++i) ASSERT_EQ(out[i], element(table, dtype, id * dim + i));
      }
    }
  }
}

using ArgmaxTest = EachTarget;
NMC_FOR_EACH_TARGET(ArgmaxTest);

TEST_P(ArgmaxTest, FindsTheLargestWhereverItStands) {
  for (const std::size_t count : {1, 5, 16, 17, 64, 100}) {
    for (std::size_t at = 0; at < count; ++at) {
      std::vector<float> values = random_floats(count, count);
      values[at] = 2;
      EXPECT_EQ(argmax(values), at) << "of " << count;
    }
  }
}

TEST_P(ArgmaxTest, TakesTheLowestIndexAmongEquals) {
  std::vector<float> values(70, 1.0f);
  EXPECT_EQ(argmax(values), 0u);
  values[0] = values[1] = 0;
  EXPECT_EQ(argmax(values), 2u);
  const std::vector<float> zeros = {-1.0f, -0.0f, 0.0f};
  EXPECT_EQ(argmax(zeros), 1u);
}

TEST_P(ArgmaxTest, NeverTakesNanUnlessThereIsNothingElse) {
  std::vector<float> values(70, kNan);
  EXPECT_EQ(argmax(values), 0u);
  values[66] = -kInfinity;
  EXPECT_EQ(argmax(values), 66u);
  values[3] = -5;
  values[40] = -4;
  EXPECT_EQ(argmax(values), 40u);
  values[69] = kInfinity;
  EXPECT_EQ(argmax(values), 69u);
}

TEST_P(ArgmaxTest, OfNothingIsZero) { EXPECT_EQ(argmax({}), 0u); }

}  // namespace
}  // namespace nmc::kernels
