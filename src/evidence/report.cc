#include "evidence/report.h"

#include <ctime>

#include "base/entropy.h"
#include "evidence/canonical.h"
#include "evidence/json_reader.h"
#include "evidence/metrics.h"
#include "evidence/percentiles.h"

namespace nmc::evidence {
namespace {

constexpr std::uint64_t kReportBytesMax = std::uint64_t{256} << 20;

Json number_json(std::string_view metric, double value) {
  const Metric* const known = find_request_metric(metric);
  if (known != nullptr && known->is_count) return static_cast<std::uint64_t>(value);
  return rounded(value);
}

// ---- to JSON ----

}  // namespace

const CaseRow* ExperimentReport::find_done(const CaseKey& key, std::uint64_t repeat) const {
  const auto found = std::ranges::find_if(
      cases, [&](const CaseRow& row) { return row.key == key && row.repeat == repeat && row.done(); });
  return found == cases.end() ? nullptr : &*found;
}

std::optional<Difference> difference(const Provenance& own, const Provenance& other, Alike alike) {
  const std::pair<Alike, Difference> all[] = {
      {Alike::kKind, {"machine", other.machine.fingerprint, own.machine.fingerprint}},
      {Alike::kKind, {"model", other.model.digest, own.model.digest}},
      {Alike::kKind, {"kind of evidence", other.evidence_tier, own.evidence_tier}},
      {Alike::kSource, {"source", other.build.source_digest, own.build.source_digest}},
      {Alike::kBuildType, {"build type", other.build.build_type, own.build.build_type}}};
  for (const auto& [needed, one] : all) {
    if (needed <= alike && one.found != one.expected) return one;
  }
  return std::nullopt;
}

Json model_json(const ModelIdentity& model) {
  return {{"name", model.name}, {"digest", model.digest}, {"dtype", model.dtype}, {"parameters", model.parameters}};
}

Json provenance_json(const Provenance& provenance) {
  const auto& [tier, build, machine, model] = provenance;
  return {{"evidence_tier", tier},
          {"build",
           {{"version", build.version},
            {"commit", build.commit},
            {"dirty", build.dirty},
            {"source_digest", build.source_digest},
            {"build_type", build.build_type},
            {"compiler", build.compiler},
            {"failpoints", build.failpoints},
            {"libraries", build.libraries}}},
          {"machine",
           {{"fingerprint", machine.fingerprint},
            {"cpu", machine.cpu},
            {"cpus", machine.cpus},
            {"memory_bytes", machine.memory_bytes},
            {"kernel", machine.kernel},
            {"instruction_level", machine.instruction_level}}},
          {"model", model_json(model)}};
}

namespace {

Json json_of(const RequestRow& row) {
  Json json = {{"id", row.id},
               {"outcome", row.outcome},
               {"error", row.error},
               {"endings", row.endings},
               {"tokens_digest", row.tokens_digest},
               {"cache_source", row.cache_source},
               {"transfer_carrier", row.transfer_carrier}};
  for (const Metric& metric : request_metrics()) {
    if (const auto found = row.metrics.find(metric.name); found != row.metrics.end())
      json["metrics"][std::string(metric.name)] = number_json(metric.name, found->second);
  }
  if (!json.contains("metrics")) json["metrics"] = Json::object();
  return json;
}

// Samples, mean, least, largest, and the percentiles there are samples enough for.
Json summary_json(const std::vector<RequestRow>& requests) {
  Json summary = Json::object();
  for (const Metric& metric : request_metrics()) {
    std::vector<double> samples;
    for (const RequestRow& request : requests) {
      if (const auto value = request.metric(metric.name)) samples.push_back(*value);
    }
    if (samples.empty()) continue;
    const Percentiles found = percentiles_of(std::move(samples));
    Json& json = summary[std::string(metric.name)];
    json = {{"samples", found.samples},
            {"mean", rounded(found.mean)},
            {"min", rounded(found.min)},
            {"max", rounded(found.max)}};
    for (std::size_t i = 0; i < kReportedPermille.size(); ++i) {
      json[fmt::format("p{}", kReportedPermille[i] / 10)] =
          found.at[i] ? Json(rounded(found.at[i]->value)) : Json("not_available");
    }
  }
  return summary;
}

Json json_of(const CaseRow& row) {
  Json json = {{"workload", row.key.workload},   {"mode", row.key.mode},
               {"transfer", row.key.transfer},   {"ratio", row.key.ratio},
               {"lifecycle", row.key.lifecycle}, {"fault", row.key.fault},
               {"repeat", row.repeat},           {"status", row.status},
               {"reason", row.reason},           {"workload_digest", row.workload_digest},
               {"resources", row.resources},     {"workers", Json::array()},
               {"fault_evidence", nullptr},      {"summary", summary_json(row.requests)},
               {"requests", Json::array()}};
  for (const WorkerRow& worker : row.workers) {
    json["workers"].push_back({{"name", worker.name},
                               {"role", worker.role},
                               {"restarts", worker.restarts},
                               {"worker_utilization", rounded(worker.worker_utilization)}});
  }
  if (row.fault) {
    json["fault_evidence"] = {{"failpoint", row.fault->failpoint},
                              {"process", row.fault->process},
                              {"fired", row.fault->fired},
                              {"expected", row.fault->expected},
                              {"observed", row.fault->observed}};
  }
  for (const RequestRow& request : row.requests) json["requests"].push_back(json_of(request));
  return json;
}

// ---- from JSON ----

Provenance read_provenance(const JsonReader& json) {
  Provenance provenance;
  provenance.evidence_tier = json.text_of("evidence_tier", {kTierMechanism, kTierCheckpoint, kTierSimulation});
  const JsonReader build = json.member("build"), machine = json.member("machine"), model = json.member("model");
  provenance.build = {.version = build.text("version"),
                      .commit = build.text("commit"),
                      .source_digest = build.hex_digest("source_digest"),
                      .build_type = build.text("build_type"),
                      .compiler = build.text("compiler"),
                      .dirty = build.boolean("dirty"),
                      .failpoints = build.boolean("failpoints"),
                      .libraries = build.texts("libraries")};
  provenance.machine = {.fingerprint = machine.hex_digest("fingerprint"),
                        .cpu = machine.text("cpu"),
                        .kernel = machine.text("kernel"),
                        .instruction_level = machine.text("instruction_level"),
                        .cpus = machine.count("cpus"),
                        .memory_bytes = machine.count("memory_bytes")};
  provenance.model = {.name = model.text("name"),
                      .digest = model.hex_digest("digest"),
                      .dtype = model.text("dtype"),
                      .parameters = model.count("parameters")};
  return provenance;
}

RequestRow read_request(const JsonReader& json) {
  RequestRow row{.id = json.text("id"),
                 .outcome = json.text_of("outcome", {"finished", "rejected", "cancelled", "deadline", "failed"}),
                 .error = json.text("error"),
                 .endings = json.count("endings"),
                 .tokens_digest = json.hex_digest("tokens_digest"),
                 .cache_source = json.text_of("cache_source", {"none", "dram", "disk", "remote", "mixed"}),
                 .transfer_carrier = json.text("transfer_carrier"),
                 .metrics = json.numbers("metrics")};
  for (const auto& [name, value] : row.metrics) {
    if (find_request_metric(name) == nullptr) json.refuse("metrics." + name, "a metric of a request");
  }
  return row;
}

CaseRow read_case(const JsonReader& json) {
  CaseRow row;
  row.key = {.workload = json.text("workload"),
             .mode = json.text_of("mode", {"monolithic", "pd-split", "pd-global"}),
             .transfer = json.text_of("transfer", {"none", "direct", "shm", "tcp"}),
             .ratio = json.text("ratio"),
             .lifecycle = json.text_of("lifecycle", {"cold", "warm", "dram-evict"}),
             .fault = json.text("fault")};
  row.repeat = json.count("repeat");
  row.status = json.text_of("status", {"done", "failed", "skipped"});
  row.reason = json.text("reason");
  row.workload_digest = json.hex_digest("workload_digest");
  row.resources = json.counts("resources");
  for (const JsonReader& worker : json.items("workers")) {
    row.workers.push_back({.name = worker.text("name"),
                           .role = worker.text("role"),
                           .restarts = worker.count("restarts"),
                           .worker_utilization = worker.number("worker_utilization")});
  }
  if (json.has("fault_evidence")) {
    const JsonReader fault = json.member("fault_evidence");
    row.fault = {.failpoint = fault.text("failpoint"),
                 .process = fault.text("process"),
                 .fired = fault.count("fired"),
                 .expected = fault.text("expected"),
                 .observed = fault.boolean("observed")};
  }
  for (const JsonReader& request : json.items("requests")) row.requests.push_back(read_request(request));
  return row;
}

}  // namespace

std::string CaseKey::name() const {
  return fmt::format("{}/{}/{}/{}/{}/{}", workload, mode, transfer, ratio, lifecycle, fault);
}

std::optional<double> RequestRow::metric(std::string_view name) const {
  const auto found = metrics.find(name);
  return found == metrics.end() ? std::nullopt : std::optional(found->second);
}

Json case_json(const CaseRow& row) { return json_of(row); }

Result<CaseRow> parse_case(const Json& json, std::string_view name) {
  std::optional<Error> fault;
  CaseRow row = read_case(JsonReader(json, "", &fault));
  if (fault) return Failure(std::move(*fault).with_context(name));
  return row;
}

Json report_json(const ExperimentReport& report) {
  Json json = {{"schema", kReportSchema},         {"run_id", report.run_id},
               {"started_at", report.started_at}, {"ended_at", report.ended_at},
               {"suite", report.suite},           {"skipped", report.skipped},
               {"config", report.config},         {"provenance", provenance_json(report.provenance)},
               {"parity", Json::array()},         {"cases", Json::array()}};
  for (const ParityRow& row : report.parity) {
    json["parity"].push_back({{"against", row.against},
                              {"status", row.status},
                              {"detail", row.detail},
                              {"tokens", row.tokens},
                              {"logit_difference_max", rounded(row.logit_difference_max)}});
  }
  for (const CaseRow& row : report.cases) json["cases"].push_back(json_of(row));
  json["report_digest"] = canonical_digest(json).hex();
  return json;
}

Result<ExperimentReport> parse_report(const Json& json, std::string_view name) {
  std::optional<Error> fault;
  const JsonReader root(json, "", &fault);
  const auto schema = json.is_object() ? json.find("schema") : json.end();
  if (schema == json.end() || *schema != Json(kReportSchema))
    return version_mismatch("{}: `schema`: expected \"{}\", got {}", name, kReportSchema,
                            schema == json.end() ? "nothing" : describe_json(*schema));
  const std::string digest = root.hex_digest("report_digest");
  if (!fault) {
    const std::string found = canonical_digest(json, "report_digest").hex();
    if (found != digest)
      return corrupt("{}: its content has the digest {}, its `report_digest` says {}: it was changed", name, found,
                     digest);
  }
  ExperimentReport report{.run_id = root.text("run_id"),
                          .started_at = root.text("started_at"),
                          .ended_at = root.text("ended_at"),
                          .suite = root.text("suite"),
                          .skipped = root.text("skipped"),
                          .config = root.object("config"),
                          .provenance = read_provenance(root.member("provenance")),
                          .cases = {},
                          .parity = {},
                          .digest = digest};
  for (const JsonReader& row : root.items("parity")) {
    report.parity.push_back(
        {.against = row.text("against"),
         .status = row.text_of("status", {"equal", "within-tolerance", "different", "not_available"}),
         .detail = row.text("detail"),
         .tokens = row.count("tokens"),
         .logit_difference_max = row.number("logit_difference_max")});
  }
  for (const JsonReader& row : root.items("cases")) report.cases.push_back(read_case(row));
  if (fault) return Failure(std::move(*fault).with_context(name));
  return report;
}

Result<ExperimentReport> read_report(const Path& path) {
  NMC_ASSIGN_OR_RETURN(const std::string text, read_file(path, kReportBytesMax));
  NMC_ASSIGN_OR_RETURN(const Json json, parse_json(text, path.string()));
  return parse_report(json, path.string());
}

namespace {

struct Instant {
  std::tm parts{};
  long ms = 0;
};

Instant now() {
  std::timespec time{};
  std::timespec_get(&time, TIME_UTC);
  Instant instant{.ms = time.tv_nsec / 1'000'000};
  ::gmtime_r(&time.tv_sec, &instant.parts);
  return instant;
}

}  // namespace

std::string utc_now() {
  const auto [tm, ms] = now();
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:03}Z", tm.tm_year + 1900, tm.tm_mon + 1, tm.tm_mday,
                     tm.tm_hour, tm.tm_min, tm.tm_sec, ms);
}

std::string new_run_id() {
  const auto [tm, ms] = now();
  return fmt::format("{:04}{:02}{:02}T{:02}{:02}{:02}{:03}Z-{:08x}", tm.tm_year + 1900, tm.tm_mon + 1, tm.tm_mday,
                     tm.tm_hour, tm.tm_min, tm.tm_sec, ms, static_cast<std::uint32_t>(machine_random()));
}

}  // namespace nmc::evidence
