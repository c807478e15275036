// Reports for tests: runs of a small suite with figures that a test sets.
#pragma once

#include <string>
#include <vector>

#include "base/hash.h"
#include "evidence/report.h"

namespace nmc::evidence {

inline RequestRow make_request(const std::string& id, double ttft_ms, double e2e_ms) {
  return {.id = id,
          .outcome = "finished",
          .error = "",
          .endings = 1,
          .tokens_digest = sha256("tokens of " + id).hex(),
          .cache_source = "none",
          .transfer_carrier = "none",
          .metrics = {{"ttft_ms", ttft_ms},
                      {"e2e_ms", e2e_ms},
                      {"prefill_ms", ttft_ms},
                      {"prompt_tokens", 64},
                      {"computed_tokens", 64},
                      {"saved_tokens", 0},
                      {"output_tokens", 8}}};
}

// `ttft_ms` for each request, which are called r0, r1, ...; e2e_ms is twice that.
inline CaseRow make_case(CaseKey key, const std::vector<double>& ttft_ms, std::uint64_t repeat = 0) {
  CaseRow row{.key = std::move(key),
              .repeat = repeat,
              .status = "done",
              .reason = "",
              .workload_digest = "",
              .requests = {},
              .workers = {},
              .resources = {{"leaked_handles", 0},
                            {"residual_slots", 0},
                            {"quarantined_entries", 0},
                            {"worker_failures", 0},
                            {"orphan_processes", 0},
                            {"orphan_shm", 0}},
              .fault = {}};
  row.workload_digest = sha256("workload " + row.key.workload).hex();
  for (std::size_t i = 0; i < ttft_ms.size(); ++i)
    row.requests.push_back(make_request("r" + std::to_string(i), ttft_ms[i], 2 * ttft_ms[i]));
  return row;
}

// Run number `number`, the later the higher. It has a digest, as if it had been read.
inline ExperimentReport make_report(int number, std::vector<CaseRow> cases) {
  ExperimentReport report{
      .run_id = fmt::format("20261201T0900{:02}000Z-{:08x}", number, number),
      .started_at = fmt::format("2026-12-01T09:00:{:02}.000Z", number),
      .ended_at = fmt::format("2026-12-01T09:30:{:02}.000Z", number),
      .suite = "custom",
      .skipped = "",
      .config = {{"seed", 1}, {"repeats", 1}, {"max_new_tokens", 8}},
      .provenance = {.evidence_tier = std::string(kTierMechanism),
                     .build = {.version = "0.1.0",
                               .commit = "0123abc",
                               .source_digest = sha256("source").hex(),
                               .build_type = "Release",
                               .compiler = "GNU 12.2.0",
                               .dirty = false,
                               .failpoints = true,
                               .libraries = {{"fmt", "9.1.0"}}},
                     .machine = {.fingerprint = sha256("machine").hex(),
                                 .cpu = "a CPU",
                                 .kernel = "6.1.0",
                                 .instruction_level = "AVX3",
                                 .cpus = 2,
                                 .memory_bytes = std::uint64_t{24} << 30},
                     .model = {.name = "tiny", .digest = sha256("model").hex(), .dtype = "bf16", .parameters = 1000}},
      .cases = std::move(cases),
      .parity = {}};
  return *parse_report(report_json(report), "a report for a test");
}

}  // namespace nmc::evidence
