#include "evidence/diagnostics.h"

#include <algorithm>

#include "evidence/budget.h"
#include "evidence/cohort.h"
#include "evidence/incident.h"
#include "evidence/json_reader.h"
#include "evidence/registry.h"

namespace nmc::evidence {
namespace {

constexpr std::string_view kAcceptanceSchema = "nano-mooncake/acceptance/v1";

Result<Json> read_json(const Path& path) {
  NMC_ASSIGN_OR_RETURN(const std::string text, read_file(path, std::uint64_t{256} << 20));
  return parse_json(text, path.string());
}

struct Gate {
  std::string name, verdict, summary;
  std::vector<std::string> findings;
};
struct ReadAcceptance {
  std::string verdict, profile, command;
  std::vector<std::string> runs;
  std::vector<Gate> gates;
};

Result<ReadAcceptance> read_acceptance(const Path& path) {
  NMC_ASSIGN_OR_RETURN(const Json json, read_json(path));
  std::optional<Error> fault;
  const JsonReader root(json, "", &fault);
  root.expect_schema(kAcceptanceSchema);
  ReadAcceptance read{.verdict = root.text_of("verdict", {"accepted", "blocked", "insufficient_evidence"}),
                      .profile = root.text("profile"),
                      .command = root.has("command") ? root.text("command") : "",
                      .runs = root.text_list("runs"),
                      .gates = {}};
  for (const JsonReader& gate : root.items("gates"))
    read.gates.push_back({gate.text("gate"), gate.text("verdict"), gate.text("summary"), gate.text_list("findings")});
  if (fault) return Failure(std::move(*fault).with_context(path.string()));
  return read;
}

std::string next_command(const Gate& gate, const ReadAcceptance& acceptance, const Path& folder) {
  const std::string index = (folder / kRunIndex).string(), budget = (folder / kRunBudget).string();
  if (gate.name == "pressure" && !acceptance.command.empty()) return acceptance.command;
  if (gate.name == "pressure")
    return fmt::format("nano-mooncake pressure-incident --index {} --budget {} --profile {}", index, budget,
                       acceptance.profile);
  if (gate.name == "fault") return fmt::format("nano-mooncake results --index {} --view faults", index);
  if (gate.name == "decision") return fmt::format("nano-mooncake decision-gap --index {}", index);
  if (gate.name == "determinism")
    return fmt::format("nano-mooncake results --index {} --view compare --format json", index);
  return fmt::format("nano-mooncake results --index {}", index);
}

Json gate_json(const Gate& gate, const ReadAcceptance& acceptance, const Path& folder) {
  return {{"gate", gate.name},
          {"verdict", gate.verdict},
          {"findings", gate.findings},
          {"next", next_command(gate, acceptance, folder)}};
}

// Text of somebody's report in a cell: it can neither end the row nor begin markup of its own.
std::string in_cell(std::string_view text) {
  std::string cell;
  for (const char c : text) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f)
      cell += ' ';
    else if (std::string_view("|<>`[]\\*").find(c) != std::string_view::npos)
      cell += {'\\', c};
    else
      cell += c;
  }
  return cell;
}

// One gate a row, for a pull request.
std::string markdown_of(const ReadAcceptance& acceptance, const std::string& bundle) {
  std::string text =
      fmt::format("**{}**: {} runs, profile {}{}\n\n| gate | verdict | |\n| --- | --- | --- |\n",
                  in_cell(acceptance.verdict), acceptance.runs.size(), in_cell(acceptance.profile), in_cell(bundle));
  for (const Gate& gate : acceptance.gates)
    text += fmt::format("| {} | {} | {} |\n", in_cell(gate.name), in_cell(gate.verdict), in_cell(gate.summary));
  return text;
}

}  // namespace

Result<Json> make_diagnostics(const Path& folder) {
  NMC_ASSIGN_OR_RETURN(const ReadAcceptance acceptance, read_acceptance(folder / kRunAcceptance));
  NMC_ASSIGN_OR_RETURN(const History history, load_history(folder / kRunIndex));
  Json json = {{"schema", "nano-mooncake/acceptance-diagnostics/v1"},
               {"verdict", acceptance.verdict},
               {"runs", acceptance.runs},
               {"gates", Json::array()},
               {"incidents", Json::array()},
               {"left_out", left_out_json(history)}};
  for (const Gate& gate : acceptance.gates) {
    if (gate.verdict != "pass" && gate.verdict != "not_applicable")
      json["gates"].push_back(gate_json(gate, acceptance, folder));
  }
  NMC_ASSIGN_OR_RETURN(const Budget budget, read_budget(folder / kRunBudget));
  const Result<Cohort> cohort = cohort_of(history);
  if (!cohort) return json;
  NMC_ASSIGN_OR_RETURN(
      const PressureVerdict pressure,
      judge_pressure(*cohort, budget, {.profile = acceptance.profile, .index = {}, .budget_path = {}}));
  json["incidents"] = incidents_json(pressure, explain_failures(history, *cohort, pressure))["incidents"];
  return json;
}

Result<EvidenceSummary> summarize_evidence(const Path& folder) {
  std::error_code ignored;
  Path acceptance_path = folder / kRunAcceptance;
  if (!std::filesystem::exists(acceptance_path, ignored)) acceptance_path = folder / "verdicts" / kRunAcceptance;
  NMC_ASSIGN_OR_RETURN(const ReadAcceptance acceptance, read_acceptance(acceptance_path));
  EvidenceSummary summary{.json = {{"schema", "nano-mooncake/evidence-summary/v1"},
                                   {"verdict", acceptance.verdict},
                                   {"runs", acceptance.runs},
                                   {"profile", acceptance.profile},
                                   {"gates", Json::array()},
                                   {"bundle", nullptr}},
                          .markdown = "",
                          .verdict = acceptance.verdict};
  for (const Gate& gate : acceptance.gates)
    summary.json["gates"].push_back({{"gate", gate.name}, {"verdict", gate.verdict}, {"summary", gate.summary}});
  std::string bundle;
  if (std::filesystem::exists(folder / kRunVerification, ignored)) {
    NMC_ASSIGN_OR_RETURN(const Json verification, read_json(folder / kRunVerification));
    std::optional<Error> fault;
    const std::string found = JsonReader(verification, "", &fault).text("verdict");
    if (fault) return Failure(std::move(*fault).with_context((folder / kRunVerification).string()));
    summary.json["bundle"] = found;
    bundle = ", bundle " + found;
  }
  summary.markdown = markdown_of(acceptance, bundle);
  return summary;
}

}  // namespace nmc::evidence
