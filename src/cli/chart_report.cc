#include "cli/chart_report.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <map>

#include "cli/chart_source.h"
#include "cli/nearest.h"
#include "cli/output.h"

namespace nmc::cli {
namespace {

constexpr std::string_view kPrefix = "nano-mooncake/", kVersion = "/v1";
constexpr std::size_t kDifferencesMax = 16, kValueMax = 60;

struct ReportKind {
  std::string_view name;
  const char* title;
  std::vector<Chart> (*charts)(std::span<const NamedReport>);
  // What a report of it holds besides what was asked for.
  std::vector<std::string_view> results;
};

const std::vector<ReportKind>& kinds() {
  static const std::vector<ReportKind> all = {
      {"simulation", "Simulation, no measurement", simulation_charts, {"rows", "definition"}},
      {"route-sim", "Routing, simulated, no measurement", route_charts, {"conversations", "routers"}},
      {"capacity", "Capacity, computed, no measurement", capacity_charts, {"rows"}},
      {"slo", "A server under load", slo_charts, {"rates", "runs", "knee", "unmeasured"}},
      {"bench-engine", "Prefill and decode throughput", bench_engine_charts, {"decode", "prefill", "ttft"}},
      {"store-bench", "Latency and bandwidth of the store", store_bench_charts, {"rows"}},
      {"demo", "The same prompt twice", demo_charts, {"runs"}},
      {"likelihood", "Likelihood of a text", likelihood_charts, {"runs", "logprobs", "token_ids"}},
  };
  return all;
}

std::vector<std::string> kind_names() {
  std::vector<std::string> names;
  for (const ReportKind& kind : kinds()) names.emplace_back(kind.name);
  return names;
}

Result<const ReportKind*> kind_of(const ReportFile& file) {
  if (!file.json.is_object() || !file.json.contains("schema") || !file.json["schema"].is_string()) {
    return invalid_argument("{}: `schema`: expected a report of this program, with a string there", file.name);
  }
  const std::string& schema = file.json["schema"].get_ref<const std::string&>();
  for (const ReportKind& kind : kinds()) {
    if (schema == fmt::format("{}{}{}", kPrefix, kind.name, kVersion)) return &kind;
  }
  return invalid_argument("{}: `schema`: {}: expected {}NAME{}, NAME one of {}", file.name,
                          describe_json(file.json["schema"], 80), kPrefix, kVersion, fmt::join(kind_names(), ", "));
}

// ---- what tells reports apart ----

using Leaves = std::vector<std::pair<std::string, std::string>>;

void collect(const Json& json, const std::string& path, Leaves& leaves) {
  if (json.is_object()) {
    for (const auto& [name, member] : json.items()) collect(member, path.empty() ? name : path + "." + name, leaves);
  } else {
    leaves.emplace_back(path, describe_json(json, kValueMax));
  }
}

Leaves context_of(const Json& report, const ReportKind& kind) {
  Leaves leaves;
  for (const auto& [name, member] : report.items()) {
    if (std::find(kind.results.begin(), kind.results.end(), name) == kind.results.end()) collect(member, name, leaves);
  }
  return leaves;
}

std::vector<std::string> differences(const std::vector<const ReportFile*>& files, const ReportKind& kind,
                                     const std::vector<std::string>& names) {
  std::vector<std::map<std::string, std::string>> all;
  std::vector<std::string> paths;
  for (const ReportFile* file : files) {
    const Leaves leaves = context_of(file->json, kind);
    auto& values = all.emplace_back();
    for (const auto& [path, value] : leaves) {
      values[path] = value;
      if (std::find(paths.begin(), paths.end(), path) == paths.end()) paths.push_back(path);
    }
  }
  std::vector<std::string> lines;
  std::size_t further = 0;
  for (const std::string& path : paths) {
    std::vector<std::string> said;
    bool differ = false;
    for (std::size_t i = 0; i < all.size(); ++i) {
      const auto found = all[i].find(path);
      const std::string value = found == all[i].end() ? "-" : found->second;
      const auto first = all[0].find(path);
      differ = differ || value != (first == all[0].end() ? "-" : first->second);
      said.push_back(fmt::format("{} in {}", value, names[i]));
    }
    if (!differ) continue;
    if (lines.size() < kDifferencesMax) {
      lines.push_back(fmt::format("Differs: {}: {}", path, fmt::join(said, ", ")));
    } else {
      ++further;
    }
  }
  if (further > 0) lines.push_back(fmt::format("{} further settings differ.", further));
  if (lines.empty()) lines.emplace_back("Their settings are the same.");
  return lines;
}

// File names, or whole paths where those are the same, or numbers where the paths are, too.
std::vector<std::string> names_of(const std::vector<const ReportFile*>& files) {
  std::vector<std::string> names;
  const auto distinct = [&names] {
    std::vector<std::string> sorted = names;
    std::sort(sorted.begin(), sorted.end());
    return std::adjacent_find(sorted.begin(), sorted.end()) == sorted.end();
  };
  for (const ReportFile* file : files) names.push_back(std::filesystem::path(file->name).filename().string());
  if (distinct()) return names;
  for (std::size_t i = 0; i < files.size(); ++i) names[i] = files[i]->name;
  if (distinct()) return names;
  for (std::size_t i = 0; i < files.size(); ++i) names[i] = fmt::format("{} ({})", files[i]->name, i + 1);
  return names;
}

// A file's name may be any bytes; a chart is UTF-8.
std::string shown_name(std::string name) {
  if (!is_valid_utf8(name)) {
    std::replace_if(
        name.begin(), name.end(), [](char c) { return static_cast<unsigned char>(c) >= 0x80; }, '?');
  }
  return printable(name);
}

// ---- a section ----

std::string build_words(const ReportNode& provenance) {
  if (!provenance.has("build")) return "not_available";
  const ReportNode build = provenance.member("build");
  return fmt::format("{} ({}, {})", build.text("version"), build.text("commit"), build.text("build_type"));
}

std::string origin_of(const NamedReport& report) {
  if (!report.root.has("provenance")) return report.name + ": evidence_tier not_available, build not_available";
  const ReportNode provenance = report.root.member("provenance");
  return fmt::format("{}: evidence_tier {}, build {}", report.name, provenance.words("evidence_tier"),
                     build_words(provenance));
}

// One line of what was asked for, from members that are there.
std::string summary_of(const NamedReport& report) {
  std::vector<std::string> said;
  const ReportNode& root = report.root;
  for (const char* name : {"rules",
                           "trace",
                           "model",
                           "mode",
                           "transfer",
                           "dtype",
                           "threads",
                           "instruction_level",
                           "cores",
                           "rounds",
                           "repeats",
                           "seq_len",
                           "batch",
                           "tp",
                           "kv_element_bytes",
                           "bandwidth_gib_s",
                           "memory_gb_s",
                           "matmul_gflops",
                           "tokens",
                           "note"}) {
    if (!root.has(name) || root.is_null(name)) continue;
    const std::string words = root.words(name);
    if (words != "\"\"" && !words.empty()) said.push_back(fmt::format("{} {}", name, words));
  }
  if (root.has("workload")) {
    const ReportNode workload = root.member("workload");
    said.push_back(fmt::format("{}, {} requests with {} blocks", workload.text("name"), workload.words("requests"),
                               workload.words("blocks")));
  }
  if (root.has("server") && root.has("load")) {
    const ReportNode server = root.member("server"), load = root.member("load");
    said.push_back(fmt::format("{}, model {}, {} arrivals, {} prompts", server.text("url"), server.text("model"),
                               load.text("arrivals"), load.text("workload")));
  }
  if (root.has("valid") && !root.boolean("valid")) said.emplace_back("not every run is valid");
  if (root.has("knee")) {
    const ReportNode knee = root.member("knee");
    said.push_back(fmt::format("knee {}", knee.words(knee.has("rate_per_s") ? "rate_per_s" : "not_available")));
  }
  return fmt::format("{}: {}", report.name, fmt::join(said, "; "));
}

Result<ChartSection> section_of(const ReportKind& kind, const std::vector<const ReportFile*>& files) {
  std::vector<std::optional<Error>> faults(files.size());
  std::vector<NamedReport> reports;
  std::vector<std::string> names = names_of(files);
  for (std::size_t i = 0; i < files.size(); ++i) {
    names[i] = shown_name(names[i]);
    reports.push_back({names[i], ReportNode(files[i]->json, "", &faults[i])});
  }
  ChartSection section{.title = kind.title, .charts = kind.charts(reports)};
  for (const NamedReport& report : reports) {
    section.facts.push_back(summary_of(report));
    section.origin.push_back(origin_of(report));
  }
  for (std::size_t i = 0; i < files.size(); ++i) {
    if (faults[i]) return Failure(std::move(*faults[i]).with_context(files[i]->name));
  }
  if (files.size() > 1) {
    for (std::string& line : differences(files, kind, names)) section.facts.push_back(std::move(line));
  }
  return section;
}

}  // namespace

Result<std::vector<ChartSection>> chart_sections(const std::vector<ReportFile>& files) {
  std::vector<std::pair<const ReportKind*, std::vector<const ReportFile*>>> groups;
  for (const ReportFile& file : files) {
    NMC_ASSIGN_OR_RETURN(const ReportKind* kind, kind_of(file));
    const auto group = std::find_if(groups.begin(), groups.end(), [&](const auto& one) { return one.first == kind; });
    if (group == groups.end()) {
      groups.push_back({kind, {&file}});
    } else {
      group->second.push_back(&file);
    }
  }
  std::vector<ChartSection> sections;
  for (const auto& [kind, of_kind] : groups) {
    NMC_ASSIGN_OR_RETURN(ChartSection section, section_of(*kind, of_kind));
    sections.push_back(std::move(section));
  }
  return sections;
}

}  // namespace nmc::cli
