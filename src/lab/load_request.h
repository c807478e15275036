// One request of a load from its plan to its answer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "lab/completion_answer.h"

namespace nmc::lab {

enum class LoadOutcome {
  kOk,
  kError,     // the server failed it, or its answer broke off
  kRejected,  // 429 or 503: the server had no room
  kTimeout,
  kUnfinished,  // the run was interrupted before
};
const char* load_outcome_name(LoadOutcome outcome);  // "ok", "error", "rejected", "timeout", "unfinished"

// Times are from the start of the run.
struct LoadRecord {
  std::size_t index = 0;
  Nanos planned{0};
  std::optional<Nanos> sent;   // when the kernel had its first bytes; nothing: it never got so far
  bool no_connection = false;  // when it was due, none was open: it went out as soon as one was
  bool failed_here = false;    // for want of descriptors or memory of ours: it says nothing about the server
  Nanos ended{0};
  LoadOutcome outcome = LoadOutcome::kUnfinished;
  int status = 0;      // of HTTP; 0: none came
  std::string reason;  // of an outcome other than kOk
  std::vector<Nanos> token_times;
  AnswerUsage usage;
  std::string finish_reason;

  Nanos lateness() const { return sent ? *sent - planned : Nanos(0); }
  // From when it should have been sent, so that a late generator can't make a server look fast. Of an answer with
  // tokens.
  double ttft_ms() const { return to_ms(token_times.front() - planned); }
  double e2e_ms() const { return to_ms(ended - planned); }
  // Mean gap between its chunks; 0 for a single one.
  double itl_mean_ms() const;
};

}  // namespace nmc::lab
