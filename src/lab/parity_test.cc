#include "lab/parity.h"

#include <gmock/gmock.h>

namespace nmc::lab {
namespace {

TEST(Parity, TheServedPathGivesWhatOnePassWithoutACacheGives) {
  ThreadPool pool(1);
  for (const Dtype dtype : {Dtype::kBf16, Dtype::kF32}) {
    const auto model = model::load_model("tiny", dtype, pool);
    ASSERT_TRUE(model);
    const auto rows = check_parity(*model, {}, pool);
    ASSERT_TRUE(rows) << rows.error().message;
    ASSERT_EQ(rows->size(), 2u);
    EXPECT_THAT(rows->at(0).status, ::testing::AnyOf("equal", "within-tolerance")) << rows->at(0).detail;
    EXPECT_EQ(rows->at(0).tokens, 8u);
    EXPECT_EQ(rows->at(1).status, "not_available");
    EXPECT_THAT(rows->at(1).detail, ::testing::HasSubstr("isn't a folder"));
  }
}

TEST(Parity, WithoutThatPythonItSaysSo) {
  ThreadPool pool(1);
  const auto model = model::load_model("tiny", Dtype::kBf16, pool);
  ASSERT_TRUE(model);
  const auto rows = check_parity(*model, {.folder = "/nowhere", .python = "/nowhere/python3"}, pool);
  ASSERT_TRUE(rows);
  EXPECT_EQ(rows->at(1).status, "not_available");
  EXPECT_THAT(rows->at(1).detail, ::testing::HasSubstr("/nowhere/python3"));
}

}  // namespace
}  // namespace nmc::lab
