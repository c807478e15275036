// What requests spent their time on, as a file in Chrome's trace format, which Perfetto (ui.perfetto.dev) and
// chrome://tracing open.
//
// The file is a JSON array of events, one a line. It is whole JSON after close(); a file whose writer was killed lacks
// the closing bracket, which both programs do without.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/files.h"
#include "base/mutex.h"
#include "base/result.h"
#include "base/syscall.h"
#include "engine/stage_span.h"
#include "engine/timeline_tracks.h"

namespace nmc::engine {

// Each process is a group of tracks. A request has a track of its group to itself from its first span there to its
// last; then another request takes it. So spans of different requests never cross on a track, and there are as many
// tracks as there were requests at once.
class TimelineWriter {
 public:
  // Replaces what `path` held, making parent folders. Fails when it can't be written.
  static Result<std::unique_ptr<TimelineWriter>> create(const Path& path);
  ~TimelineWriter();  // close()
  TimelineWriter(const TimelineWriter&) = delete;
  TimelineWriter& operator=(const TimelineWriter&) = delete;

  // Thread-safe; waits for neither the disk nor the writer. With kQueuedSpansMax spans waiting to be written this one
  // is dropped, which the last event of the file counts.
  static constexpr std::size_t kQueuedSpansMax = 65'536;
  void add(StageSpan span);

  // Writes what waits and ends the file; what is added later is dropped. The first error of writing, which was logged
  // when it happened, and after which everything was dropped. Further calls give the same. Thread-safe.
  Result<void> close();

 private:
  TimelineWriter(UniqueFd file, std::string path);

  void run();
  void append(const StageSpan& span);
  void append_group(std::size_t group, const StageSpan& span);
  void append_end();
  template <typename... Arguments>
  void append_event(fmt::format_string<Arguments...> format, Arguments&&... arguments);
  Result<void> write_text();
  void fail(const Error& error, std::size_t lost);

  const std::string path_;

  // The writer's own.
  UniqueFd file_;
  TimelineTracks tracks_;
  std::string text_;  // to be written next
  std::uint64_t written_ = 0;
  Nanos last_end_{0};
  bool is_first_ = true;

  Mutex mutex_;
  CondVar wake_;
  std::vector<StageSpan> queue_ NMC_GUARDED_BY(mutex_);
  std::uint64_t dropped_ NMC_GUARDED_BY(mutex_) = 0;
  bool closing_ NMC_GUARDED_BY(mutex_) = false;
  std::optional<Error> failure_ NMC_GUARDED_BY(mutex_);
  Mutex joining_;
  std::thread thread_ NMC_GUARDED_BY(joining_);
};

}  // namespace nmc::engine
