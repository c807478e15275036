// `nano-mooncake plot`: charts of reports.
#include <fmt/core.h>

#include "base/files.h"
#include "cli/chart_report.h"
#include "cli/command.h"
#include "cli/exit_code.h"
#include "cli/output.h"
#include "cli/serving_settings.h"

namespace nmc::cli {
namespace {

constexpr std::string_view kServingFlags[] = {"log-level"};

bool is_chart_file(std::string_view text) { return text.ends_with(".svg") || text.ends_with(".html"); }

// What --output's name says, unless --format says it.
Result<bool> wants_html(const Settings& settings) {
  const std::string output = settings.text_or("output", "");
  if (settings.has("format")) {
    const std::string& format = settings.text("format");
    if (output.empty() || output.ends_with("." + format)) return format == "html";
    return invalid_argument("{}: {}: expected the ending of {}", settings.where("format"), format, output);
  }
  return output.ends_with(".html");
}

Result<int> run(const Settings& settings) {
  NMC_ASSIGN_OR_RETURN(const bool html, wants_html(settings));
  std::vector<ReportFile> files;
  for (const std::string& name : settings.operands()) {
    NMC_ASSIGN_OR_RETURN(const std::string text, read_file(name));
    NMC_ASSIGN_OR_RETURN(Json json, parse_json(text, name));
    files.push_back({name, std::move(json)});
  }
  NMC_ASSIGN_OR_RETURN(const std::vector<ChartSection> sections, chart_sections(files));
  const std::string title = "nano-mooncake: " + sections.front().title + (sections.size() > 1 ? ", and more" : "");
  const std::string drawn = html ? charts_html(title, sections) : charts_svg(title, sections);
  if (settings.has("output")) {
    NMC_RETURN_IF_ERROR(write_file_atomic(settings.text("output"), drawn));
  } else {
    NMC_RETURN_IF_ERROR(write_standard_output(drawn));
  }
  return kExitDone;
}

}  // namespace

Command plot_command() {
  Command command{
      .name = "plot",
      .summary = "charts of what the other commands report",
      .operands = "REPORT...",
      .purpose =
          "Draws reports that were written with --format json: of simulate, route-sim, capacity, slo, bench-engine, "
          "store-bench, demo and likelihood. Reports of one kind are drawn side by side, and what differs in their "
          "settings is listed; each further kind has a section of its own. What a report doesn't know is shown as "
          "not_available. Under each chart stand the kind of evidence and the build.\n\n"
          "The result is one file that needs no other and no script, in light or dark as its reader has it. A page "
          "(.html) also has the numbers of each chart as a table. Equal reports give equal bytes.",
      .settings = {{.name = "output",
                    .placeholder = "FILE",
                    .help = "Write to FILE, .svg or .html, whole or not at all, making parent folders. Default: "
                            "standard output.",
                    .accepts = is_chart_file,
                    .accepted = "a name that ends in .svg or .html",
                    .source = Source::kFlagOnly},
                   {.name = "format",
                    .kind = Kind::kChoice,
                    .placeholder = "svg|html",
                    .help = "Default: what --output ends in, or svg.",
                    .choices = {"svg", "html"},
                    .source = Source::kFlagOnly}},
      .exit_codes = {kExitDone, kExitWrongInput, kExitNotDone, kExitInterrupted},
      .example = "nano-mooncake plot lru.json s3-fifo.json --output compared.html",
      .run = run,
  };
  for (Setting& setting : serving_settings_for(kServingFlags)) command.settings.push_back(std::move(setting));
  return command;
}

}  // namespace nmc::cli
