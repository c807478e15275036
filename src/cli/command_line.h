// The flags of one command, taken from its line and not yet interpreted.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "cli/command.h"
#include "cli/settings.h"

namespace nmc::cli {

struct CommandLine {
  Flags flags;                        // those given, without --config
  std::vector<std::string> operands;  // words that are no flags, of a command that takes some
  std::string config;                 // value of --config; "" if not given
  bool help = false;
  bool version = false;
};

// `--flag value` and `--flag=value`, dashes and underscores alike, further spellings where Command::gflags is set. An
// unknown flag, a flag given twice, a flag without its value and a word that is no flag,
// where the command takes none, are errors; the first names the
// nearest flag of the command.
Result<CommandLine> parse_command_line(const Command& command, std::span<const std::string> arguments);

}  // namespace nmc::cli
