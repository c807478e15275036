// `nano-mooncake top`: a running server, or a store's master, in a terminal.
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <optional>

#include "cli/command.h"
#include "cli/exit_code.h"
#include "cli/output.h"
#include "cli/screen.h"
#include "cli/serving_settings.h"
#include "cli/signals.h"
#include "cli/terminal.h"
#include "cli/top_reading.h"
#include "cli/top_view.h"

namespace nmc::cli {
namespace {

constexpr std::string_view kServingFlags[] = {"api-key", "log-level"};
constexpr Nanos kReadTimeout = std::chrono::seconds(5);
// Between two looks at what needs no reading: a resized terminal, a signal.
constexpr Nanos kLook = std::chrono::milliseconds(100);
constexpr std::size_t kColumnsWithoutTerminal = 120;

struct Watched {
  net::HttpUrl url;
  net::HttpClientOptions options;
  Result<TopReading> read() const { return read_top(url, options); }
};

Result<Watched> source_of(const Settings& settings) {
  auto url = net::HttpUrl::parse(settings.text("url"));
  if (!url) return Failure(std::move(url).error().with_context(settings.where("url")));
  Watched source{.url = std::move(*url), .options = {.timeout = kReadTimeout}};
  const std::string key = settings.text_or("api-key", "");
  if (!key.empty()) source.options.headers.push_back({"Authorization", "Bearer " + key});
  return source;
}

// `trouble`: why there is no newer reading; "": there is.
std::vector<Line> frame_of(const TopView& view, const Watched& source, const std::string& trouble, TerminalSize size) {
  std::vector<Line> lines;
  Line& head = lines.emplace_back();
  head.add("nano-mooncake top", Style::kBold).add("   ").add(source.url.address.to_string(), Style::kDim).add("   ");
  if (!trouble.empty()) head.add("trying on: " + trouble, Style::kRed);
  const std::vector<Line> body = view.lines(size.columns, size.rows > 2 ? size.rows - 2 : 0);
  lines.insert(lines.end(), body.begin(), body.end());
  return lines;
}

// "queue.running", "workers.0.state": a row each.
void add_rows(Table& table, const std::string& path, const Json& json) {
  if (json.is_array()) {
    for (std::size_t i = 0; i < json.size(); ++i) add_rows(table, fmt::format("{}.{}", path, i), json[i]);
  } else if (json.is_object()) {
    for (const auto& [name, member] : json.items()) add_rows(table, path.empty() ? name : path + "." + name, member);
  } else {
    table.rows.push_back({path, json.is_string() ? json.get<std::string>() : dump_json(json)});
  }
}

Report report_of(const TopView& view, const Watched& source, bool is_server) {
  Report report;
  report.json["schema"] = "nano-mooncake/top/v1";
  report.json["url"] = source.url.to_string();
  report.json["kind"] = is_server ? "server" : "store";
  report.json["figures"] = view.figures();
  report.table.columns = {"figure", "value"};
  add_rows(report.table, "", report.json["figures"]);
  TerminalSize size{.columns = kColumnsWithoutTerminal, .rows = 100};
  if (is_terminal(1)) size.columns = terminal_size().columns;
  report.text = render_lines(frame_of(view, source, "", size), size.columns, wants_colours());
  return report;
}

// Draws until q is pressed (done) or a signal comes (interrupted).
Result<int> watch(TopView& view, const Watched& source, Nanos interval) {
  NMC_ASSIGN_OR_RETURN(StopSignal stop, StopSignal::create());
  NMC_ASSIGN_OR_RETURN(const std::unique_ptr<Screen> screen, Screen::open());
  const bool colours = wants_colours();
  std::string trouble;
  Nanos next = real_clock().now() + interval;
  std::optional<TerminalSize> drawn;  // nothing: what is on the screen is old
  while (!stop.has_come()) {
    const TerminalSize size = terminal_size();
    if (drawn != size) {
      NMC_RETURN_IF_ERROR(screen->draw(render_lines(frame_of(view, source, trouble, size), size.columns, colours)));
      drawn = size;
    }
    const Nanos left = next - real_clock().now();
    const std::optional<char> key = screen->key(std::clamp(left, Nanos{0}, kLook));
    if (key == 'q' || key == 'Q') return kExitDone;
    if (real_clock().now() < next) continue;
    Result<TopReading> reading = source.read();
    trouble = reading ? "" : reading.error().message;
    if (reading) view.add(std::move(*reading));
    next = real_clock().now() + interval;
    drawn.reset();
  }
  return kExitInterrupted;
}

Result<int> run(const Settings& settings) {
  const bool once = settings.on("once");
  if (!once && (settings.text("format") != "table" || settings.has("output"))) {
    return invalid_argument("{}: expected --once with it: what changes every second has no end",
                            settings.has("output") ? "--output" : "--format");
  }
  NMC_ASSIGN_OR_RETURN(const Watched source, source_of(settings));
  NMC_ASSIGN_OR_RETURN(TopReading first, source.read());
  const bool is_server = first.kind == TopReading::Kind::kServer;
  const std::unique_ptr<TopView> view = make_top_view(std::move(first));
  if (!once) {
    const auto interval = std::chrono::duration<double>(settings.seconds("interval-s"));
    return watch(*view, source, std::max(kLook, std::chrono::duration_cast<Nanos>(interval)));
  }
  NMC_RETURN_IF_ERROR(write_report(report_of(*view, source, is_server), settings));
  return kExitDone;
}

std::vector<Setting> top_settings() {
  std::vector<Setting> settings = {
      {.name = "url",
       .kind = Kind::kText,
       .placeholder = "URL",
       .default_text = "http://127.0.0.1:8000",
       .help = "Of the server, or of a master's --metrics-port: http://HOST:PORT.",
       .source = Source::kFlagOnly},
      {.name = "interval-s",
       .kind = Kind::kSeconds,
       .placeholder = "S",
       .default_text = "1",
       .help = "Seconds between two readings; less than 0.1 is taken as that.",
       .low = 0,
       .high = 3600,
       .source = Source::kFlagOnly},
      {.name = "once",
       .kind = Kind::kSwitch,
       .default_text = "false",
       .help = "One frame, or with --format the figures of one reading, and no terminal is needed.",
       .source = Source::kFlagOnly},
  };
  for (Setting& setting : serving_settings_for(kServingFlags)) settings.push_back(std::move(setting));
  for (Setting& setting : report_settings()) settings.push_back(std::move(setting));
  return settings;
}

}  // namespace

Command top_command() {
  return {
      .name = "top",
      .summary = "a running server or store in a terminal",
      .purpose =
          "Shows what a server does as it does it: requests, time to the first token and between tokens, prompt tokens "
          "saved and computed, the block pool, where lookups were found, workers and the last hand-overs. Or a store: "
          "memory, objects, lookups, puts, evictions, disk and segments. `now` is what happened since the reading "
          "before; percentiles are the server's, of its last requests. q quits. NO_COLOR turns colours off.",
      .settings = top_settings(),
      .exit_codes = {kExitDone, kExitWrongInput, kExitNotDone, kExitInterrupted},
      .example = "nano-mooncake top --url http://127.0.0.1:8000",
      .run = run,
  };
}

}  // namespace nmc::cli
