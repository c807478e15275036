// The registry of runs, results/index.jsonl: a line of JSON a report, appended and never changed. What a record says
// can be had from its report again, so a lost or damaged registry is rebuilt; views and gates read the reports it
// names.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/files.h"
#include "base/result.h"
#include "evidence/report.h"

namespace nmc::evidence {

inline constexpr std::string_view kRecordSchema = "nano-mooncake/registry-record/v1";

struct RegistryRecord {
  std::string run_id;
  std::string path;  // of the report, from the registry's folder; or absolute
  std::string report_digest;
  std::string started_at, ended_at, suite, evidence_tier;
  std::string source_digest, build_type, model_digest, machine;  // machine: its fingerprint
  bool dirty = false;
  std::uint64_t cases = 0, cases_done = 0;

  bool operator==(const RegistryRecord&) const = default;
};

// A report's path as a record of the registry at `index` has it: from its folder if the report lies below that, else
// absolute.
std::string path_from(const Path& index, const Path& report);

RegistryRecord record_of(const ExperimentReport& report, std::string path);

// With "schema" first and "record_digest" last, the canonical digest of the rest.
Json record_json(const RegistryRecord& record);
// kCorrupt: its digest doesn't match. `name` is for messages: "results/index.jsonl:3".
Result<RegistryRecord> parse_record(std::string_view line, std::string_view name);

struct Registry {
  std::vector<RegistryRecord> records;  // in their order
  bool torn = false;                    // its last line was cut off while it was written; it isn't among them
};

// kNotFound without a file; what is wrong with the first bad line, by its number. A last line without an end was never
// acknowledged and is passed over.
Result<Registry> read_registry(const Path& index);

// Appends and syncs; makes file and folder. Waits for other writers, at most 10 s (kDeadlineExceeded). What a writer
// that was killed left of a line is cut off first. The same record again changes nothing; another one with its run_id
// is kAlreadyExists.
Result<void> append_record(const Path& index, const RegistryRecord& record);

// The runs that a registry names, from their reports.
struct History {
  std::vector<ExperimentReport> runs;               // by time of their end, whatever the order of records
  std::map<std::string, std::string> report_paths;  // by run_id, as the records have them
  // Records whose report can't be used, with why: missing, changed since, or unlike its record.
  struct LeftOut {
    std::string run_id, path, why;
  };
  std::vector<LeftOut> left_out;
  bool torn = false;  // Registry's
};
Result<History> load_history(const Path& index);

// The run of that id, "" being the newest; one that was skipped is none. kNotFound: there is no such run.
Result<const ExperimentReport*> find_run(const History& history, std::string_view run_id);

// An array of the records left out, for a report.
Json left_out_json(const History& history);

struct Rebuilt {
  std::size_t records = 0;
  std::vector<std::string> left_out;  // "FILE: why", of reports that failed
};
// Writes the registry anew, atomically, from the reports among *.json below `reports`, by time of their end. JSON of
// other kinds and reports of runs that were skipped are passed over. Keeps nothing of what was there.
Result<Rebuilt> rebuild_registry(const Path& reports, const Path& index);

}  // namespace nmc::evidence
