// Sends a load over real sockets as planned, whatever the server does, and takes the times of every answer.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "lab/api_endpoint.h"
#include "lab/load_request.h"
#include "net/http.h"

namespace nmc::lab {

struct LoadTarget {
  ApiEndpoint endpoint;
  std::string path = "/v1/completions";
  std::vector<net::HttpHeader> headers;
  bool streamed = true;  // what bodies ask for
  std::function<std::string(std::size_t)>
      body;  // of request `index`; called on a thread that works ahead of the sender
};

struct LoopOptions {
  // Open loop: when each request is due, ascending. Empty: closed loop.
  std::vector<Nanos> arrivals;
  // Closed loop: so many are under way at any time, the next one is due when one was answered, until `duration`.
  std::size_t concurrency = 0;
  Nanos duration{0};
  std::size_t requests_max = 1'000'000;  // closed loop

  Nanos timeout = std::chrono::seconds(60);  // of a request, from when it was due
  std::function<bool()> should_stop;         // asked on the calling thread; true ends the run at once
  std::function<void(std::size_t sent, std::size_t ended)> on_progress;  // now and then on the calling thread
};

struct LoopRun {
  std::vector<LoadRecord> records;  // by index, of all that were due
  bool interrupted = false;
  bool realtime_sender = false;  // the system let the sender go before other programs
  double reader_busy = 0;        // part of the time in which the reader's thread used a core
  double seconds = 0;            // from the start to the last answer
};

// Threads of its own: one builds requests ahead, some open connections ahead, one sends at absolute times and waits for
// nothing else, one reads. Returns when every request has its outcome. Errors: the first connections could not be
// opened.
Result<LoopRun> run_loop(const LoadTarget& target, const LoopOptions& options);

}  // namespace nmc::lab
