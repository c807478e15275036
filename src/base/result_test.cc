#include "base/result.h"

#include <gtest/gtest.h>

#include <memory>
#include <set>

namespace nmc {
namespace {

Result<int> half(int number) {
  if (number % 2 != 0) return invalid_argument("{} is odd", number);
  return number / 2;
}

Result<int> quarter(int number) {
  NMC_ASSIGN_OR_RETURN(const int once, half(number));
  NMC_ASSIGN_OR_RETURN(const int twice, half(once));
  return twice;
}

Result<void> check_even(int number) {
  NMC_RETURN_IF_ERROR(half(number));
  return {};
}

TEST(Result, PassesValuesAndErrorsUp) {
  EXPECT_EQ(*quarter(8), 2);
  EXPECT_EQ(quarter(6).error().message, "3 is odd");
  EXPECT_EQ(quarter(6).error().code, ErrorCode::kInvalidArgument);
  EXPECT_TRUE(check_even(2));
  EXPECT_EQ(check_even(3).error().message, "3 is odd");
}

TEST(Result, HoldsWhatOnlyMoves) {
  const auto make = []() -> Result<std::unique_ptr<int>> { return std::make_unique<int>(3); };
  const auto pass = [&]() -> Result<std::unique_ptr<int>> {
    NMC_ASSIGN_OR_RETURN(std::unique_ptr<int> value, make());
    return value;
  };
  EXPECT_EQ(**pass(), 3);
}

TEST(Error, ContextIsPutInFront) {
  Error error = half(3).error();
  EXPECT_EQ(std::move(error).with_context("shard 2").to_string(), "invalid_argument: shard 2: 3 is odd");
}

TEST(ErrorCode, NamesAreDistinct) {
  std::set<std::string> names;
  for (int code = 0; code <= static_cast<int>(ErrorCode::kInternal); ++code) {
    names.insert(error_code_name(static_cast<ErrorCode>(code)));
  }
  EXPECT_EQ(names.size(), static_cast<std::size_t>(ErrorCode::kInternal) + 1);
  EXPECT_EQ(names.count("unknown"), 0u);
}

}  // namespace
}  // namespace nmc
