// From argv to an exit code: which command, its settings, its run, its one line of error.
#pragma once

#include <span>
#include <string>

namespace nmc::cli {

// `arguments[0]` is the program's name: called as nano-mooncake-X it is command X.
int run_program(std::span<const std::string> arguments);

}  // namespace nmc::cli
