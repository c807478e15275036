// The report of one run of the experiments: schema nano-mooncake/experiments/v1 (docs/formats.md). All that views and
// gates judge is here, so that what they say can be checked from reports alone. Plain values; reading one checks it
// whole.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/files.h"
#include "base/json.h"
#include "base/result.h"

namespace nmc::evidence {

inline constexpr std::string_view kReportSchema = "nano-mooncake/experiments/v1";

// Kinds of evidence.
inline constexpr std::string_view kTierMechanism = "random-weight-mechanism";
inline constexpr std::string_view kTierCheckpoint = "local-checkpoint";
inline constexpr std::string_view kTierSimulation = "simulation";

// The word for something that can't be known, as a build's source outside a checkout.
inline constexpr std::string_view kUnknown = "unknown";

struct BuildIdentity {
  std::string version, commit;
  std::string source_digest;  // of all files of the source tree; kUnknown
  std::string build_type;     // "Release"
  std::string compiler;
  bool dirty = false;       // the tree had changes that no commit has
  bool failpoints = false;  // faults can be injected
  std::map<std::string, std::string> libraries;

  bool operator==(const BuildIdentity&) const = default;
};

struct MachineIdentity {
  std::string fingerprint;  // of the rest; runs of other fingerprints aren't compared
  std::string cpu, kernel, instruction_level;
  std::uint64_t cpus = 0, memory_bytes = 0;

  bool operator==(const MachineIdentity&) const = default;
};

struct ModelIdentity {
  std::string name, digest, dtype;
  std::uint64_t parameters = 0;

  bool operator==(const ModelIdentity&) const = default;
};

struct Provenance {
  std::string evidence_tier;
  BuildIdentity build;
  MachineIdentity machine;
  ModelIdentity model;

  bool operator==(const Provenance&) const = default;
};

// What a case is, in the words of the command's flags.
struct CaseKey {
  std::string workload;   // "high-reuse"
  std::string mode;       // "monolithic", "pd-split", "pd-global"
  std::string transfer;   // "shm", "tcp", "direct"; "none" with monolithic
  std::string ratio;      // "2p1d"; "1" with monolithic
  std::string lifecycle;  // "cold", "warm", "dram-evict"
  std::string fault;      // "none", or its name

  std::string name() const;  // all of them, in that order, with '/' between
  auto operator<=>(const CaseKey&) const = default;
};

struct RequestRow {
  std::string id;             // within the workload: the same request has the same id in each case of the workload
  std::string outcome;        // "finished", "rejected", "cancelled", "deadline", "failed"
  std::string error;          // the code of one that failed: "unavailable"; else ""
  std::uint64_t endings = 0;  // times it was told an end, or was refused: one
  std::string tokens_digest;  // SHA-256 of the answer's ids as u32 LE
  std::string cache_source;   // "none", "dram", "disk", "remote", "mixed"
  std::string transfer_carrier;
  std::map<std::string, double, std::less<>> metrics;  // names of request_metrics(); those it has none of are left out

  std::optional<double> metric(std::string_view name) const;
  bool operator==(const RequestRow&) const = default;
};

struct WorkerRow {
  std::string name, role;
  std::uint64_t restarts = 0;
  double worker_utilization = 0;  // 0..1

  bool operator==(const WorkerRow&) const = default;
};

// That a fault was really injected.
struct FaultEvidence {
  std::string failpoint;    // "handover.span=exit@1"; "": none is needed, as for a cancellation
  std::string process;      // that it was meant for: "prefill-0"
  std::uint64_t fired = 0;  // times it acted in that process, by that process's own count
  std::string expected;     // "right": the answers are those without the fault; else the outcome of those it hits
  bool observed = false;    // it hit: the counter, or what takes its place, says so

  bool operator==(const FaultEvidence&) const = default;
};

struct CaseRow {
  CaseKey key;
  std::uint64_t repeat = 0;     // each repeat starts the whole system anew
  std::string status;           // "done"; "failed": it couldn't be run; "skipped": this build or host can't
  std::string reason;           // of the latter two
  std::string workload_digest;  // of all prompts, their order and the lengths asked for
  std::vector<RequestRow> requests;
  std::vector<WorkerRow> workers;
  // "leaked_handles", "residual_slots", "quarantined_entries", "worker_failures", "orphan_processes", "orphan_shm";
  // with a fault also "quarantined_expected". What isn't known is left out.
  std::map<std::string, std::uint64_t, std::less<>> resources;
  std::optional<FaultEvidence> fault;  // where key.fault isn't "none"

  bool done() const { return status == "done"; }
  bool operator==(const CaseRow&) const = default;
};

// Of the paged path with another computation of the same answers.
struct ParityRow {
  std::string against;       // "full-attention", "transformers"
  std::string status;        // "equal", "within-tolerance", "different", "not_available"
  std::string detail;        // figures, or why there is none
  std::uint64_t tokens = 0;  // compared
  double logit_difference_max = 0;

  bool operator==(const ParityRow&) const = default;
};

struct ExperimentReport {
  std::string run_id;                // unique: "20261201T085012345Z-1f3a5c7e"
  std::string started_at, ended_at;  // UTC, "2026-12-01T08:50:12.345Z"
  std::string suite;                 // "default", "smoke", "full", or "custom" with cases chosen by flags
  std::string skipped;               // why nothing was run; "" otherwise
  Json config = Json::object();      // the command's flags, with seed, repeats and max_new_tokens
  Provenance provenance;
  std::vector<CaseRow> cases;
  std::vector<ParityRow> parity;
  std::string digest = {};  // `report_digest` of the JSON it was read from; "": it wasn't

  const CaseRow* find_done(const CaseKey& key, std::uint64_t repeat) const;  // null: there is none

  bool operator==(const ExperimentReport&) const = default;
};

// How alike two runs have to be: of one machine, model and kind of evidence; of one build type, too; of one source,
// too.
enum class Alike { kKind, kBuildType, kSource };

struct Difference {
  std::string_view what;  // "machine", "model", "kind of evidence", "source" or "build type"
  std::string found, expected;
};
// The first thing that sets `other` apart from `own`; nothing: they are alike.
std::optional<Difference> difference(const Provenance& own, const Provenance& other, Alike alike);

// Members of a report's "provenance": "evidence_tier", "build", "machine", "model"; and the last by itself.
Json model_json(const ModelIdentity& model);
Json provenance_json(const Provenance& provenance);

// With "schema" first and "report_digest" last, which is the canonical digest (canonical.h) of the rest. Each case gets
// a "summary" of its requests, which readers don't need.
Json report_json(const ExperimentReport& report);

// The other way. kVersionMismatch: another schema; kCorrupt: the digest doesn't match; kInvalidArgument: a member isn't
// as it should be. `name` is for messages.
Result<ExperimentReport> parse_report(const Json& json, std::string_view name);
Result<ExperimentReport> read_report(const Path& path);

// A case by itself: as a report has it.
Json case_json(const CaseRow& row);
Result<CaseRow> parse_case(const Json& json, std::string_view name);

// "20261201T085012345Z-1f3a5c7e" and "2026-12-01T08:50:12.345Z" of now.
std::string new_run_id();
std::string utc_now();

}  // namespace nmc::evidence
