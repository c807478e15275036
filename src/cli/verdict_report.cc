#include "cli/verdict_report.h"

#include <fmt/core.h>

namespace nmc::cli {
namespace {

Cell verdict_cell(evidence::Verdict verdict) { return std::string(evidence::verdict_name(verdict)); }

// The table, and the verdict on the whole below.
std::string with_verdict(const Table& table, std::string_view verdict, std::size_t runs) {
  return format_table(table) + fmt::format("\n{}, on {} runs\n", verdict, runs);
}

}  // namespace

Report pressure_report(const evidence::PressureVerdict& verdict) {
  Report report;
  report.json = evidence::pressure_json(verdict);
  report.table.columns = {"rule", "verdict", "value", "limit", "samples", "reason"};
  for (const evidence::RuleVerdict& one : verdict.rules) {
    const std::string limit = fmt::format("{} {:g}{}", one.rule.at_least ? ">=" : "<=", one.rule.effective_limit(),
                                          one.rule.calibrated ? " (calibrated)" : "");
    report.table.rows.push_back({one.rule.id, verdict_cell(one.verdict),
                                 one.measured.value ? Cell(*one.measured.value, 3) : Cell("not_available"), limit,
                                 one.measured.samples, one.reason});
  }
  report.text = with_verdict(report.table, evidence::verdict_name(verdict.verdict), verdict.runs.size());
  for (const std::string& caveat : verdict.caveats) report.text += caveat + "\n";
  if (!verdict.command.empty()) report.text += "calibrate by: " + verdict.command + "\n";
  return report;
}

Report fault_report(const evidence::FaultVerdict& verdict) {
  Report report;
  report.json = evidence::fault_json(verdict);
  report.table.columns = {"invariant", "verdict", "cases", "breaches", "first"};
  for (const evidence::Invariant& one : verdict.invariants) {
    std::string first;
    if (!one.breaches.empty()) first = one.breaches[0].case_name + ": " + one.breaches[0].detail;
    report.table.rows.push_back(
        {one.name, verdict_cell(one.verdict), one.cases, std::uint64_t{one.breaches.size()}, printable(first)});
  }
  report.text = with_verdict(report.table, evidence::verdict_name(verdict.verdict), verdict.runs.size());
  return report;
}

Report acceptance_report(const evidence::Acceptance& acceptance) {
  Report report;
  report.json = evidence::acceptance_json(acceptance);
  report.table.columns = {"gate", "verdict", "summary"};
  for (const evidence::GateLine& gate : acceptance.gates) {
    report.table.rows.push_back(
        {gate.name, gate.applies ? verdict_cell(gate.verdict) : Cell("not_applicable"), printable(gate.summary)});
  }
  report.text = with_verdict(report.table, evidence::acceptance_name(acceptance.verdict), acceptance.runs.size());
  if (!acceptance.pressure.command.empty()) report.text += "calibrate by: " + acceptance.pressure.command + "\n";
  return report;
}

Report verification_report(const evidence::BundleVerification& verification, const std::string& path) {
  Report report;
  report.json = evidence::verification_json(verification);
  report.table.columns = {"kind", "path", "detail"};
  for (const evidence::ContainerFault& fault : verification.findings)
    report.table.rows.push_back({fault.kind, fault.path, printable(fault.detail)});
  if (!verification.is_verified()) report.text = format_table(report.table) + "\n";
  report.text +=
      fmt::format("{}: {}, {} files of {} runs\n", path, verification.is_verified() ? "verified" : "rejected",
                  verification.files, verification.runs);
  return report;
}

}  // namespace nmc::cli
