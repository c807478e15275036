// `nano-mooncake results`: six views of all runs.
#include <fmt/core.h>

#include "cli/command.h"
#include "cli/evidence_settings.h"
#include "cli/exit_code.h"
#include "cli/output.h"
#include "cli/view_html.h"
#include "evidence/view.h"

namespace nmc::cli {
namespace {

Cell cell_of(const Json& row, const evidence::ViewColumn& column) {
  const Json& value = row.at(column.name);
  if (value.is_number_float()) return {value.get<double>(), column.decimals};
  if (value.is_number_unsigned()) return {value.get<std::uint64_t>()};
  if (value.is_string()) return {printable(value.get<std::string>())};
  return {dump_json(value)};
}

Table table_of(const evidence::View& view) {
  Table table;
  for (const evidence::ViewColumn& column : view.columns) table.columns.push_back(column.name);
  for (const Json& row : view.rows) {
    std::vector<Cell>& cells = table.rows.emplace_back();
    for (const evidence::ViewColumn& column : view.columns) cells.push_back(cell_of(row, column));
  }
  return table;
}

Report report_of(const evidence::View& view, const evidence::History& history) {
  Report report{.json = evidence::view_json(view, history), .text = "", .table = table_of(view)};
  report.text = view.rows.empty() ? "nothing of that kind was run\n" : format_table(report.table);
  report.text += fmt::format("\n{} runs", view.runs.size());
  for (const std::string& caveat : view.caveats) report.text += "\n" + caveat;
  for (const evidence::View::Apart& apart : view.apart)
    report.text += fmt::format("\napart: {}: {}", apart.what, apart.why);
  report.text += "\n";
  return report;
}

Result<int> run(const Settings& settings) {
  NMC_ASSIGN_OR_RETURN(const evidence::History history, history_of(settings));
  auto cohort = evidence::cohort_of(history, settings.text_or("run", ""));
  if (!cohort) return Failure(std::move(cohort).error().with_context(settings.text("index")));
  const evidence::DecisionOptions options{.metric = settings.text("metric"), .margin = settings.seconds("margin")};
  NMC_ASSIGN_OR_RETURN(const evidence::View view,
                       evidence::make_view(settings.text("view"), history, *cohort, options));
  if (settings.text("format") != "html") {
    NMC_RETURN_IF_ERROR(write_report(report_of(view, history), settings));
    return kExitDone;
  }
  const std::string page = view_html(view, *cohort, format_table(table_of(view)));
  if (settings.has("output"))
    NMC_RETURN_IF_ERROR(write_file_atomic(settings.text("output"), page));
  else
    NMC_RETURN_IF_ERROR(write_standard_output(page));
  return kExitDone;
}

}  // namespace

Command results_command() {
  Command command{
      .name = "results",
      .summary = "six views of all runs that a registry names",
      .purpose =
          "compare: runs that may be compared, case by case. trend: along time. pressure: by number of workers. "
          "frontier: "
          "what the cache brings once hand-overs are paid. decision: where the cache and separate workers win or lose. "
          "faults: what was injected, and what came of it.\n\n"
          "Runs are compared with the newest one's where machine, model, kind of evidence, build and workload are the "
          "same; "
          "others stand apart, with the reason. A verdict is win, loss, neutral or insufficient_evidence, from "
          "requests "
          "served both ways, resampled by starts of the system.",
      .exit_codes = {kExitDone, kExitWrongInput, kExitNotDone, kExitInterrupted},
      .example = "nano-mooncake results --view frontier --format html --output results/views/frontier.html",
      .run = run,
  };
  command.settings =
      with_common_settings({index_setting("The registry of runs."),
                            {.name = "view",
                             .kind = Kind::kChoice,
                             .placeholder = "NAME",
                             .default_text = "compare",
                             .help = "Which view.",
                             .choices = {std::begin(evidence::kViews), std::end(evidence::kViews)},
                             .source = Source::kFlagOnly},
                            {.name = "run",
                             .placeholder = "ID",
                             .default_text = "",
                             .help = "Compare with this run's machine, model and build. Default: the newest run's.",
                             .source = Source::kFlagOnly},
                            {.name = "metric",
                             .kind = Kind::kChoice,
                             .placeholder = "ttft_ms|e2e_ms",
                             .default_text = "e2e_ms",
                             .help = "What decisions are about.",
                             .choices = {"ttft_ms", "e2e_ms"},
                             .source = Source::kFlagOnly},
                            {.name = "margin",
                             .kind = Kind::kNumber,
                             .placeholder = "PART",
                             .default_text = "0.05",
                             .help = "A difference below that part is none.",
                             .low = 0,
                             .high = 1,
                             .source = Source::kFlagOnly}},
                           true);
  Setting& format = *std::ranges::find(command.settings, "format", &Setting::name);
  format.placeholder += "|html";
  format.choices.emplace_back("html");
  format.help += " html: one page with charts that needs no other file.";
  return command;
}

}  // namespace nmc::cli
