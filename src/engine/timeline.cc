#include "engine/timeline.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>
#include <system_error>

#include "base/failpoint.h"
#include "base/json.h"
#include "base/log.h"

namespace nmc::engine {
namespace {

std::string quoted(const std::string& text) { return dump_json(Json(text)); }

double to_us(Nanos time) { return std::chrono::duration<double, std::micro>(time).count(); }

}  // namespace

Result<std::unique_ptr<TimelineWriter>> TimelineWriter::create(const Path& path) {
  std::error_code error;
  if (path.has_parent_path()) std::filesystem::create_directories(path.parent_path(), error);
  if (error) return Failure(os_error("create", path.parent_path().string(), error.value()));
  UniqueFd file(retry_on_eintr([&] { return ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644); }));
  if (!file) return Failure(os_error("open", path.string()));
  return std::unique_ptr<TimelineWriter>(new TimelineWriter(std::move(file), path.string()));
}

TimelineWriter::TimelineWriter(UniqueFd file, std::string path) : path_(std::move(path)), file_(std::move(file)) {
  thread_ = std::thread([this] { run(); });
}

TimelineWriter::~TimelineWriter() { static_cast<void>(close()); }

void TimelineWriter::add(StageSpan span) {
  MutexLock lock(mutex_);
  if (closing_ || failure_ || queue_.size() >= kQueuedSpansMax) {
    ++dropped_;
    return;
  }
  queue_.push_back(std::move(span));
  if (queue_.size() == 1) wake_.notify_one();
}

Result<void> TimelineWriter::close() {
  {
    MutexLock lock(mutex_);
    closing_ = true;
    wake_.notify_one();
  }
  {
    MutexLock lock(joining_);
    if (thread_.joinable()) thread_.join();
  }
  MutexLock lock(mutex_);
  if (failure_) return Failure(*failure_);
  return {};
}

void TimelineWriter::run() {
  std::vector<StageSpan> batch;
  text_ = "[\n";
  for (bool last = false; !last;) {
    {
      MutexLock lock(mutex_);
      while (queue_.empty() && !closing_) wake_.wait(mutex_);
      batch.clear();
      batch.swap(queue_);
      last = closing_;
    }
    for (const StageSpan& span : batch) append(span);
    if (last) append_end();
    if (const Result<void> done = write_text(); !done) return fail(done.error(), batch.size());
  }
}

void TimelineWriter::append(const StageSpan& span) {
  const TimelineTracks::Place at = tracks_.place(span);
  if (at.new_group) append_group(at.group, span);
  if (at.new_track) {
    append_event(R"({{"name":"thread_name","ph":"M","pid":{},"tid":{},"args":{{"name":"slot {}"}}}})", at.group,
                 at.track, at.track);
  }
  append_event(
      R"({{"name":{},"cat":"stage","ph":"X","ts":{:.3f},"dur":{:.3f},"pid":{},"tid":{},"args":{{"request":{}}}}})",
      quoted(span.stage), to_us(span.start), to_us(span.end - span.start), at.group, at.track, quoted(span.request_id));
  ++written_;
  last_end_ = std::max(last_end_, span.end);
}

// Workers that are threads of one process are groups of their own, so the format's pid is the group.
void TimelineWriter::append_group(std::size_t group, const StageSpan& span) {
  append_event(R"({{"name":"process_name","ph":"M","pid":{},"args":{{"name":{}}}}})", group,
               quoted(fmt::format("{} (pid {})", span.process, span.pid)));
  append_event(R"({{"name":"process_sort_index","ph":"M","pid":{},"args":{{"sort_index":{}}}}})", group, group);
}

void TimelineWriter::append_end() {
  MutexLock lock(mutex_);
  append_event(R"({{"name":"end","ph":"i","s":"g","ts":{:.3f},"pid":0,"tid":0,"args":{{"spans":{},"dropped":{}}}}})",
               to_us(last_end_), written_, dropped_);
  text_ += "\n]\n";
}

template <typename... Arguments>
void TimelineWriter::append_event(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
  if (!is_first_) text_ += ",\n";
  is_first_ = false;
  fmt::format_to(std::back_inserter(text_), format, std::forward<Arguments>(arguments)...);
}

Result<void> TimelineWriter::write_text() {
  if (auto hit = failpoint("timeline.write")) return Failure(*std::move(hit));
  for (std::string_view left = text_; !left.empty();) {
    const ssize_t count = retry_on_eintr([&] { return ::write(file_.get(), left.data(), left.size()); });
    if (count < 0) return Failure(os_error("write", path_));
    left.remove_prefix(static_cast<std::size_t>(count));
  }
  text_.clear();
  return {};
}

// Serving goes on without it.
void TimelineWriter::fail(const Error& error, std::size_t lost) {
  log_warning("timeline: {}; nothing more is written to it", error.message);
  MutexLock lock(mutex_);
  failure_ = error;
  dropped_ += lost + queue_.size();
  queue_.clear();
}

}  // namespace nmc::engine
