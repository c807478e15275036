// What a runtime tells of a request's way, stage by stage.
#pragma once

#include <cstdint>
#include <string>

#include "base/clock.h"

namespace nmc::engine {

// A stage of one request, in one process.
struct StageSpan {
  std::string request_id;
  std::string stage;    // "queue", "lookup", "restore", "prefill", "export", "encode", "transport", "unpack", "import",
                        // "decode": see docs/formats.md, "Metrics"
  std::string process;  // "front", or a worker's name
  std::int64_t pid = 0;    // of the system; threads of one process have it in common
  Nanos start{0}, end{0};  // CLOCK_MONOTONIC
  bool is_last = false;    // of this request in this process: its track is free for another
};

}  // namespace nmc::engine
