#include "evidence/registry.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <set>
#include <thread>

#include "base/clock.h"
#include "base/syscall.h"
#include "evidence/canonical.h"
#include "evidence/json_reader.h"

namespace nmc::evidence {
namespace {

constexpr std::uint64_t kRegistryBytesMax = std::uint64_t{256} << 20;
constexpr Nanos kLockWait = std::chrono::seconds(10);
constexpr auto kLockRetry = std::chrono::milliseconds(5);

Path folder_of(const Path& index) { return index.has_parent_path() ? index.parent_path() : Path("."); }

// The file at `index`, locked against other writers. Its name may come to mean another file while we wait, when a
// registry is rebuilt; then it's that one's turn.
Result<UniqueFd> open_locked(const Path& index) {
  std::error_code ignored;
  std::filesystem::create_directories(folder_of(index), ignored);  // opening says what is wrong
  const Stopwatch watch;
  for (;;) {
    UniqueFd fd(::open(index.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
    if (!fd) return Failure(os_error("open", index.string()));
    if (::flock(fd.get(), LOCK_EX | LOCK_NB) == 0) {
      struct stat mine {
      }, named{};
      if (::fstat(fd.get(), &mine) == 0 && ::stat(index.c_str(), &named) == 0 && mine.st_ino == named.st_ino) return fd;
      continue;
    }
    if (errno != EWOULDBLOCK && errno != EINTR) return Failure(os_error("lock", index.string()));
    if (watch.elapsed() > kLockWait)
      return deadline_exceeded("{}: another writer has held it for 10 s", index.string());
    std::this_thread::sleep_for(kLockRetry);
  }
}

std::vector<std::string_view> whole_lines(std::string_view text) {
  std::vector<std::string_view> lines;
  for (std::size_t begin = 0, end; (end = text.find('\n', begin)) != std::string_view::npos; begin = end + 1)
    lines.push_back(text.substr(begin, end - begin));
  return lines;
}

Result<Registry> parse_registry(std::string_view text, const Path& index) {
  Registry registry{.records = {}, .torn = !text.empty() && text.back() != '\n'};
  std::set<std::string, std::less<>> ids;
  std::size_t number = 0;
  for (const std::string_view line : whole_lines(text)) {
    const std::string name = fmt::format("{}:{}", index.string(), ++number);
    NMC_ASSIGN_OR_RETURN(RegistryRecord record, parse_record(line, name));
    if (!ids.insert(record.run_id).second) return corrupt("{}: run {} is there twice", name, record.run_id);
    registry.records.push_back(std::move(record));
  }
  return registry;
}

Result<void> write_all(int fd, std::string_view text, const Path& index) {
  while (!text.empty()) {
    const ssize_t written = ::write(fd, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return Failure(os_error("write", index.string()));
    text.remove_prefix(static_cast<std::size_t>(written));
  }
  if (::fsync(fd) != 0) return Failure(os_error("sync", index.string()));
  return {};
}

bool ends_earlier(const ExperimentReport& a, const ExperimentReport& b) {
  return std::tie(a.ended_at, a.run_id) < std::tie(b.ended_at, b.run_id);
}

}  // namespace

std::string path_from(const Path& index, const Path& report) {
  const Path folder = std::filesystem::weakly_canonical(folder_of(index));
  const Path absolute = std::filesystem::weakly_canonical(report);
  const Path relative = absolute.lexically_relative(folder);
  const bool below = !relative.empty() && *relative.begin() != "..";
  return (below ? relative : absolute).string();
}

RegistryRecord record_of(const ExperimentReport& report, std::string path) {
  const auto& [tier, build, machine, model] = report.provenance;
  return {.run_id = report.run_id,
          .path = std::move(path),
          .report_digest = report.digest,
          .started_at = report.started_at,
          .ended_at = report.ended_at,
          .suite = report.suite,
          .evidence_tier = tier,
          .source_digest = build.source_digest,
          .build_type = build.build_type,
          .model_digest = model.digest,
          .machine = machine.fingerprint,
          .dirty = build.dirty,
          .cases = report.cases.size(),
          .cases_done = static_cast<std::uint64_t>(std::ranges::count_if(report.cases, &CaseRow::done))};
}

Json record_json(const RegistryRecord& record) {
  Json json = {{"schema", kRecordSchema},
               {"run_id", record.run_id},
               {"path", record.path},
               {"report_digest", record.report_digest},
               {"started_at", record.started_at},
               {"ended_at", record.ended_at},
               {"suite", record.suite},
               {"evidence_tier", record.evidence_tier},
               {"source_digest", record.source_digest},
               {"build_type", record.build_type},
               {"dirty", record.dirty},
               {"model_digest", record.model_digest},
               {"machine", record.machine},
               {"cases", record.cases},
               {"cases_done", record.cases_done}};
  json["record_digest"] = canonical_digest(json).hex();
  return json;
}

Result<RegistryRecord> parse_record(std::string_view line, std::string_view name) {
  NMC_ASSIGN_OR_RETURN(const Json json, parse_json(line, name));
  std::optional<Error> fault;
  const JsonReader root(json, "", &fault);
  root.expect_schema(kRecordSchema);
  const std::string digest = root.hex_digest("record_digest");
  RegistryRecord record{.run_id = root.text("run_id"),
                        .path = root.text("path"),
                        .report_digest = root.hex_digest("report_digest"),
                        .started_at = root.text("started_at"),
                        .ended_at = root.text("ended_at"),
                        .suite = root.text("suite"),
                        .evidence_tier = root.text("evidence_tier"),
                        .source_digest = root.hex_digest("source_digest"),
                        .build_type = root.text("build_type"),
                        .model_digest = root.hex_digest("model_digest"),
                        .machine = root.hex_digest("machine"),
                        .dirty = root.boolean("dirty"),
                        .cases = root.count("cases"),
                        .cases_done = root.count("cases_done")};
  if (fault) return Failure(std::move(*fault).with_context(name));
  const std::string found = canonical_digest(json, "record_digest").hex();
  if (found != digest)
    return corrupt("{}: the record's content has the digest {}, its `record_digest` says {}: it was changed", name,
                   found, digest);
  return record;
}

Result<Registry> read_registry(const Path& index) {
  NMC_ASSIGN_OR_RETURN(const std::string text, read_file(index, kRegistryBytesMax));
  return parse_registry(text, index);
}

Result<void> append_record(const Path& index, const RegistryRecord& record) {
  NMC_ASSIGN_OR_RETURN(const UniqueFd file, open_locked(index));
  NMC_ASSIGN_OR_RETURN(const std::string text, read_file(index, kRegistryBytesMax));
  NMC_ASSIGN_OR_RETURN(const Registry registry, parse_registry(text, index));
  for (const RegistryRecord& other : registry.records) {
    if (other == record) return {};
    if (other.run_id == record.run_id) return already_exists("{}: has another run {}", index.string(), record.run_id);
  }
  if (registry.torn) {
    const std::size_t whole = text.rfind('\n') + 1;  // 0 where there is no line
    if (::ftruncate(file.get(), static_cast<off_t>(whole)) != 0) return Failure(os_error("cut", index.string()));
  }
  return write_all(file.get(), dump_json(record_json(record)) + '\n', index);
}

Result<History> load_history(const Path& index) {
  NMC_ASSIGN_OR_RETURN(const Registry registry, read_registry(index));
  History history{.runs = {}, .report_paths = {}, .left_out = {}, .torn = registry.torn};
  for (const RegistryRecord& record : registry.records) {
    Result<ExperimentReport> report = read_report(folder_of(index) / record.path);
    std::string why;
    if (!report) {
      why = report.error().message;
    } else if (record_of(*report, record.path) != record) {
      why = "the report isn't the one that the record is of";
    }
    if (!why.empty()) {
      history.left_out.push_back({record.run_id, record.path, std::move(why)});
      continue;
    }
    history.report_paths[record.run_id] = record.path;
    history.runs.push_back(std::move(*report));
  }
  std::ranges::sort(history.runs, ends_earlier);
  std::ranges::sort(history.left_out, {}, &History::LeftOut::run_id);
  return history;
}

Result<const ExperimentReport*> find_run(const History& history, std::string_view run_id) {
  const ExperimentReport* found = nullptr;
  for (const ExperimentReport& run : history.runs) {
    if (run.skipped.empty() && (run_id.empty() || run.run_id == run_id)) found = &run;
  }
  if (found != nullptr) return found;
  if (run_id.empty()) return not_found("the registry names no run that can be read");
  return not_found("the registry names no run {} that can be read", run_id);
}

Json left_out_json(const History& history) {
  Json json = Json::array();
  for (const History::LeftOut& left : history.left_out)
    json.push_back({{"run_id", left.run_id}, {"path", left.path}, {"why", left.why}});
  return json;
}

Result<Rebuilt> rebuild_registry(const Path& reports, const Path& index) {
  std::error_code failed;
  std::vector<Path> files;
  for (std::filesystem::recursive_directory_iterator entry(reports, failed), end; !failed && entry != end;
       entry.increment(failed)) {
    if (entry->path().extension() == ".json" && entry->is_regular_file(failed)) files.push_back(entry->path());
  }
  if (failed) return Failure(Error{ErrorCode::kNotFound, fmt::format("{}: {}", reports.string(), failed.message())});
  std::ranges::sort(files);
  Rebuilt rebuilt;
  std::vector<std::pair<ExperimentReport, std::string>> found;
  std::set<std::string> ids;
  for (const Path& file : files) {
    Result<ExperimentReport> report = read_report(file);
    if (!report && report.error().code == ErrorCode::kVersionMismatch) continue;  // JSON of another kind
    if (report && !report->skipped.empty()) continue;                             // says why there was no run
    if (report && !ids.insert(report->run_id).second)
      report = already_exists("{}: run {} is in another file, too", file.string(), report->run_id);
    if (!report) {
      rebuilt.left_out.push_back(report.error().message);
      continue;
    }
    found.emplace_back(std::move(*report), path_from(index, file));
  }
  std::ranges::sort(found, [](const auto& a, const auto& b) { return ends_earlier(a.first, b.first); });
  std::string text;
  for (const auto& [report, path] : found) text += dump_json(record_json(record_of(report, path))) + '\n';
  NMC_ASSIGN_OR_RETURN(const UniqueFd lock, open_locked(index));
  NMC_RETURN_IF_ERROR(write_file_atomic(index, text));
  rebuilt.records = found.size();
  return rebuilt;
}

}  // namespace nmc::evidence
