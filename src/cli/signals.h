// SIGINT and SIGTERM. Process-wide by nature: one part of a program decides, its command.
#pragma once

#include "base/result.h"
#include "base/syscall.h"

namespace nmc::cli {

// From now on either signal ends the process at once with exit code 130. Files written atomically are whole or absent.
void exit_on_signals();

// For a server: from construction on the first of either signal ends wait(), a second one ends the process with 130.
// At most one at a time.
class StopSignal {
 public:
  static Result<StopSignal> create();
  // Blocks until the first signal; its number.
  Result<int> wait();
  // Whether it has come; doesn't block.
  bool has_come() const;

 private:
  explicit StopSignal(UniqueFd event) : event_(std::move(event)) {}
  UniqueFd event_;
};

}  // namespace nmc::cli
