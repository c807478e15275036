// What a process tells by its exit status. One table for every command, so that scripts can rely on it.
#pragma once

#include <string_view>

#include "base/result.h"

namespace nmc::cli {

inline constexpr int kExitDone = 0;
inline constexpr int kExitJudgedFailed = 1;  // the command judges, and the verdict is no
inline constexpr int kExitWrongInput = 2;    // wrong usage or unreadable input
inline constexpr int kExitNotDone = 3;       // the work could not be done
inline constexpr int kExitInsufficientEvidence = 4;
inline constexpr int kExitInterrupted = 130;

// The code for a command that ended in an error of that kind.
int exit_code_of(ErrorCode code);

// One line for help texts. `exit_code` is one of the constants above.
std::string_view exit_code_meaning(int exit_code);

}  // namespace nmc::cli
