#include "base/dtype.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace nmc {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

TEST(DtypeTest, NamesRoundTrip) {
  for (const Dtype dtype : {Dtype::kF32, Dtype::kBf16, Dtype::kF16}) EXPECT_EQ(parse_dtype(dtype_name(dtype)), dtype);
  EXPECT_FALSE(parse_dtype("float32"));
  EXPECT_FALSE(parse_dtype(""));
  EXPECT_FALSE(parse_dtype("BF16"));
}

TEST(DtypeTest, EveryBf16SurvivesWidening) {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto half = static_cast<std::uint16_t>(bits);
    const float wide = f32_from_bf16(half);
    if (std::isnan(wide))
      EXPECT_TRUE(std::isnan(f32_from_bf16(bf16_from_f32(wide))));
    else
      ASSERT_EQ(bf16_from_f32(wide), half);
  }
}

TEST(DtypeTest, EveryF16SurvivesWidening) {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto half = static_cast<std::uint16_t>(bits);
    const float wide = f32_from_f16(half);
    if (std::isnan(wide))
      EXPECT_TRUE(std::isnan(f32_from_f16(f16_from_f32(wide))));
    else
      ASSERT_EQ(f16_from_f32(wide), half);
  }
}

TEST(DtypeTest, F16WidensToItsDefinition) {
  EXPECT_EQ(f32_from_f16(0x3c00), 1.0f);
  EXPECT_EQ(f32_from_f16(0xc000), -2.0f);
  EXPECT_EQ(f32_from_f16(0x7bff), 65504.0f);
  EXPECT_EQ(f32_from_f16(0x0400), 0x1p-14f);
  EXPECT_EQ(f32_from_f16(0x0001), 0x1p-24f);
  EXPECT_EQ(f32_from_f16(0x7c00), kInfinity);
  EXPECT_TRUE(std::signbit(f32_from_f16(0x8000)));
}

// Between two neighbours the nearer one wins, and halfway the one with the even last bit.
template <typename Widen, typename Narrow>
void expect_nearest_even(std::uint32_t finite_end, Widen widen, Narrow narrow) {
  for (std::uint32_t bits = 0; bits + 1 < finite_end; ++bits) {
    const auto low = static_cast<std::uint16_t>(bits), high = static_cast<std::uint16_t>(bits + 1);
    const float middle = static_cast<float>((double{widen(low)} + double{widen(high)}) / 2);
    ASSERT_EQ(narrow(middle), bits % 2 == 0 ? low : high) << bits;
    ASSERT_EQ(narrow(std::nextafter(middle, 0.0f)), low) << bits;
    ASSERT_EQ(narrow(std::nextafter(middle, kInfinity)), high) << bits;
    ASSERT_EQ(narrow(-middle), 0x8000u | (bits % 2 == 0 ? low : high)) << bits;
  }
}

TEST(DtypeTest, Bf16RoundsToNearestEven) { expect_nearest_even(0x7f80, f32_from_bf16, bf16_from_f32); }
TEST(DtypeTest, F16RoundsToNearestEven) { expect_nearest_even(0x7c00, f32_from_f16, f16_from_f32); }

TEST(DtypeTest, TooLargeBecomesInfinity) {
  EXPECT_EQ(f16_from_f32(65519.996f), 0x7bff);
  EXPECT_EQ(f16_from_f32(65520.0f), 0x7c00);
  EXPECT_EQ(f16_from_f32(-1e30f), 0xfc00);
  EXPECT_EQ(f16_from_f32(kInfinity), 0x7c00);
  EXPECT_EQ(bf16_from_f32(std::numeric_limits<float>::max()), 0x7f80);
  EXPECT_EQ(bf16_from_f32(-kInfinity), 0xff80);
}

TEST(DtypeTest, NanStaysNan) {
  for (const std::uint32_t bits : {0x7f800001u, 0x7fc00000u, 0xffffffffu, 0x7f80ffffu}) {
    const float nan = std::bit_cast<float>(bits);
    EXPECT_TRUE(std::isnan(f32_from_bf16(bf16_from_f32(nan)))) << bits;
    EXPECT_TRUE(std::isnan(f32_from_f16(f16_from_f32(nan)))) << bits;
  }
}

}  // namespace
}  // namespace nmc
