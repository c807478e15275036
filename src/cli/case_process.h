// A child that runs one case of the experiments, with processes of its own: started, waited for, and what it left
// behind found. A case by itself is a process so that faults can be injected into it, nothing of it lasts, and its end,
// of whatever kind, is not the end of the suite.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/files.h"
#include "base/result.h"
#include "cli/signals.h"

namespace nmc::cli {

struct CaseProcessOptions {
  std::vector<std::string> arguments;    // of this program
  std::vector<std::string> environment;  // "NAME=value", beside this process's own
  Path log;                              // gets what it and its processes say
  Nanos deadline{0};                     // after which it is killed
};

struct CaseProcessEnd {
  int exit_code = 0;  // 128 and the signal's number where one ended it
  bool timed_out = false, interrupted = false;
  std::uint64_t orphan_processes = 0;  // that outlived it, and were then killed
  std::uint64_t orphan_shm = 0;        // folders of shared memory that it left
  std::string last_words;              // the last line of the log
};

// One at a time: processes that outlive the child become children of this one, which has no others. `stop` ends the
// waiting. Fails where no process can be started.
Result<CaseProcessEnd> run_case_process(const CaseProcessOptions& options, const StopSignal& stop);

// For the child: ends with the process that started it. False where that one is gone already.
bool end_with_parent(std::int64_t parent);

}  // namespace nmc::cli
