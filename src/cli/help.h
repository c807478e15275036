// What --help prints.
#pragma once

#include <span>
#include <string>

#include "cli/command.h"

namespace nmc::cli {

// Purpose, flags with units and defaults, exit codes, one example.
std::string command_help(const Command& command);

// The program and its commands.
std::string program_help(std::span<const Command> commands);

// Version, commit, build type and the instructions in use, in one line.
std::string version_line();

}  // namespace nmc::cli
