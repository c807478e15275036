#include "cli/exit_code.h"

#include <gtest/gtest.h>

namespace nmc::cli {
namespace {

TEST(ExitCode, InputFaultsAndWorkNotDoneAreToldApart) {
  EXPECT_EQ(exit_code_of(ErrorCode::kInvalidArgument), kExitWrongInput);
  EXPECT_EQ(exit_code_of(ErrorCode::kCorrupt), kExitWrongInput);
  EXPECT_EQ(exit_code_of(ErrorCode::kVersionMismatch), kExitWrongInput);
  EXPECT_EQ(exit_code_of(ErrorCode::kAlreadyExists), kExitNotDone);
  EXPECT_EQ(exit_code_of(ErrorCode::kResourceExhausted), kExitNotDone);
  EXPECT_EQ(exit_code_of(ErrorCode::kCancelled), kExitInterrupted);
}

TEST(ExitCode, EveryErrorEndsInACodeThatHelpExplains) {
  for (int code = 0; code <= static_cast<int>(ErrorCode::kInternal); ++code) {
    const int exit_code = exit_code_of(static_cast<ErrorCode>(code));
    EXPECT_NE(exit_code, kExitDone) << error_code_name(static_cast<ErrorCode>(code));
    EXPECT_NE(exit_code_meaning(exit_code), "");
  }
}

}  // namespace
}  // namespace nmc::cli
