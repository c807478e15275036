#include <gtest/gtest.h>

#include "kernels/kernels.h"
#include "kernels/test_support.h"

namespace nmc::kernels {
namespace {

struct alignas(64) Line {
  std::byte bytes[64];
};

class PackTest : public testing::Test {
 protected:
  std::byte* reserve(std::size_t n, std::size_t k, Dtype dtype) {
    lines_.assign(packed_bytes(n, k, dtype) / sizeof(Line) + 1, Line{});
    for (Line& line : lines_) std::fill_n(line.bytes, sizeof line.bytes, std::byte{0xff});
    return lines_[0].bytes;
  }
  // Row `i` of the matrix that `packed` stands for: the product with a unit vector.
  std::vector<float> column_values(const PackedMatrix& packed, std::size_t i) {
    std::vector<float> x(packed.k), y(packed.n);
    x[i] = 1;
    matmul(pool_, x.data(), 1, packed, y.data(), packed.n);
    return y;
  }

  ThreadPool pool_{2};
  std::vector<Line> lines_;
};

TEST_F(PackTest, SizeCountsWholePanels) {
  EXPECT_EQ(packed_bytes(0, 10, Dtype::kBf16), 0u);
  EXPECT_EQ(packed_bytes(1, 10, Dtype::kBf16), 32u * 10 * 2);
  EXPECT_EQ(packed_bytes(32, 10, Dtype::kF32), 32u * 10 * 4);
  EXPECT_EQ(packed_bytes(33, 10, Dtype::kF16), 64u * 10 * 2);
}

TEST_F(PackTest, EveryConversionRoundsOnceToNearest) {
  const std::size_t n = 45, k = 6;
  for (const Dtype from : kAllDtypes) {
    const std::vector<std::byte> rows = narrowed(random_floats(n * k, 8), from);
    for (const Dtype to : kAllDtypes) {
      const PackedMatrix packed{reserve(n, k, to), n, k, to};
      pack_matrix(pool_, rows.data(), from, n, k, lines_[0].bytes, to, 0, n);
      for (std::size_t i = 0; i < k; ++i) {
        const std::vector<float> values = column_values(packed, i);
        for (std::size_t c = 0; c < n; ++c) {
          const float exact = element(rows, from, c * k + i);
          ASSERT_EQ(values[c], element(narrowed(std::span(&exact, 1), to), to, 0))
              << dtype_name(from) << " to " << dtype_name(to) << " column " << c;
        }
      }
    }
  }
}

TEST_F(PackTest, PartsFillOneMatrixAndPaddingIsZero) {
  const std::size_t k = 9;
  const std::vector<float> q = random_floats(64 * k, 1), v = random_floats(40 * k, 2);
  for (const Dtype dtype : kAllDtypes) {
    const std::size_t n = 64 + 40;
    std::byte* const data = reserve(n, k, dtype);
    pack_matrix(pool_, v.data(), Dtype::kF32, 40, k, data, dtype, 64, n);
    pack_matrix(pool_, q.data(), Dtype::kF32, 64, k, data, dtype, 0, n);
    const PackedMatrix padded{data, 128, k, dtype};  // its last 24 columns are the padding
    for (std::size_t i = 0; i < k; ++i) {
      const std::vector<float> values = column_values(padded, i);
      for (std::size_t c = 0; c < 128; ++c) {
        const float exact = c < 64 ? q[c * k + i] : c < n ? v[(c - 64) * k + i] : 0.0f;
        ASSERT_EQ(values[c], element(narrowed(std::span(&exact, 1), dtype), dtype, 0)) << "column " << c;
      }
    }
  }
}

TEST_F(PackTest, RefusesPartsThatWouldSharePanels) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  std::vector<float> w(100);
  std::byte* const data = reserve(200, 1, Dtype::kF32);
  const auto pack = [&](std::size_t n, std::size_t offset, std::size_t total) {
    pack_matrix(pool_, w.data(), Dtype::kF32, n, 1, data, Dtype::kF32, offset, total);
  };
  EXPECT_DEATH(pack(32, 16, 64), "column_offset=16");
  EXPECT_DEATH(pack(40, 0, 64), "n=40");
  EXPECT_DEATH(pack(64, 32, 64), "n_total=64");
}

}  // namespace
}  // namespace nmc::kernels
