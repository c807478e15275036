#include "cli/top_view.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "cli/setting.h"

namespace nmc::cli {
namespace {

constexpr std::size_t kNameColumns = 22, kFigureColumns = 10, kBarColumnsMax = 64;

std::string bytes_text(std::optional<double> bytes) {
  return bytes ? format_bytes(static_cast<std::uint64_t>(*bytes)) : "-";
}

// A number at `path`; nothing where there is none, as with "not_available".
std::optional<double> number_at(const Json& json, std::initializer_list<const char*> path) {
  const Json* at = &json;
  for (const char* name : path) {
    if (!at->is_object()) return std::nullopt;
    const auto found = at->find(name);
    if (found == at->end()) return std::nullopt;
    at = &*found;
  }
  return at->is_number() ? std::optional(at->get<double>()) : std::nullopt;
}

std::string text_at(const Json& json, const char* name) {
  const auto found = json.find(name);
  return found != json.end() && found->is_string() ? found->get<std::string>() : "-";
}

std::size_t bar_columns(std::size_t columns) {
  return std::min(kBarColumnsMax, columns > kNameColumns + 4 ? columns - kNameColumns - 2 : 2);
}

// "pinned 26" with its colour, for the line below a bar.
void add_legend(Line& line, std::string_view name, const std::string& value, const Part& part) {
  line.add(part.fill, part.style).add(" ").add(name, Style::kDim).add(" ").add(value).add("   ");
}

Line row_of(std::string_view name) {
  Line line;
  line.left(name, kNameColumns, Style::kDim);
  return line;
}

// ---- a server -------------------------------------------------------------------------------------------------------

class ServerView final : public TopView {
 public:
  explicit ServerView(TopReading first) { add(std::move(first)); }

  void add(TopReading reading) override {
    const double seconds = reading_ ? to_ms(reading.at - reading_->at) / 1e3 : 0;
    // A server that was started anew counts from zero again: nothing can be told of the time between.
    const bool goes_on = seconds > 0 && value(reading, {"requests", "received"}) >= now({"requests", "received"});
    const auto rate = [&](const char* name) -> std::optional<double> {
      const auto before = now({"counters", name}), after = value(reading, {"counters", name});
      if (!goes_on || !before || !after) return std::nullopt;
      return (*after - *before) / seconds;
    };
    const auto mean = [&](const char* name) -> std::optional<double> {
      const auto sum = value(reading, {"latency", name, "sum"}), count = value(reading, {"latency", name, "count"});
      if (!goes_on || !sum || !count) return std::nullopt;
      const double more = *count - now({"latency", name, "count"}).value_or(0);
      if (more <= 0) return std::nullopt;
      return (*sum - now({"latency", name, "sum"}).value_or(0)) / more;
    };
    ttft_.add(mean("ttft_ms"));
    itl_.add(mean("itl_ms"));
    output_.add(rate("output_tokens"));
    saved_.add(rate("saved_tokens"));
    computed_.add(rate("computed_tokens"));
    reading_ = std::move(reading);
  }

  std::vector<Line> lines(std::size_t columns, std::size_t rows) const override {
    std::vector<Line> all;
    add_head(all);
    add_rates(all);
    add_pool(all, columns);
    add_lookups(all, columns);
    add_workers(all);
    add_handovers(all, rows);
    return all;
  }

  Json figures() const override {
    Json json = reading_->document;
    json.erase("schema");
    return json;
  }

 private:
  static std::optional<double> value(const TopReading& reading, std::initializer_list<const char*> path) {
    return number_at(reading.document, path);
  }
  std::optional<double> now(std::initializer_list<const char*> path) const {
    return reading_ ? value(*reading_, path) : std::nullopt;
  }

  void add_head(std::vector<Line>& all) const {
    const Json& document = reading_->document;
    Line& head = all.emplace_back();
    for (const char* name : {"model", "mode", "reuse", "transfer"}) {
      if (text_at(document, "mode") == "monolithic" && std::string_view(name) == "transfer") continue;
      head.add(std::string(name) == "transfer" ? "hand-over" : name, Style::kDim).add(" ");
      head.add(text_at(document, name), Style::kBold).add("   ");
    }
    all.emplace_back();
    Line queue = row_of("requests");
    queue.add(whole(now({"queue", "running"})), Style::kBold)
        .add(fmt::format(" running of {}   ", whole(now({"queue", "max_running"}))));
    queue.add(whole(now({"queue", "queued"})), Style::kBold)
        .add(fmt::format(" queued, room for {}", whole(now({"queue", "max_queue"}))));
    all.push_back(std::move(queue));
    Line totals = row_of("");
    for (const char* name : {"received", "finished", "cancelled", "failed", "rejected"}) {
      const std::optional<double> count = now({"requests", name});
      const bool is_bad = std::string_view(name) == "failed" && count.value_or(0) > 0;
      totals.add(fmt::format("{} ", name), Style::kDim).add(whole(count), is_bad ? Style::kRed : Style::kPlain);
      totals.add("   ");
    }
    all.push_back(std::move(totals));
    all.emplace_back();
  }

  void add_rates(std::vector<Line>& all) const {
    Line titles = row_of("");
    for (const char* title : {"now", "median", "p95", "p99"}) titles.right(title, kFigureColumns, Style::kDim);
    all.push_back(std::move(titles));
    const auto latency = [&](const char* title, const char* name, const History& history) {
      Line line = row_of(title);
      line.right(decimal(history.last()), kFigureColumns, Style::kBold);
      for (const char* percentile : {"p50", "p95", "p99"})
        line.right(decimal(now({"latency", name, percentile})), kFigureColumns);
      all.push_back(std::move(line.add("  ").add(history.sparkline(), Style::kBlue)));
    };
    latency("first token, ms", "ttft_ms", ttft_);
    latency("between tokens, ms", "itl_ms", itl_);
    all.emplace_back();
    const auto tokens = [&](const char* title, const History& history, Style style, const std::string& total) {
      Line line = row_of(title);
      line.right(decimal(history.last()), kFigureColumns, Style::kBold).right(total, 3 * kFigureColumns);
      all.push_back(std::move(line.add("  ").add(history.sparkline(), style)));
    };
    const std::optional<double> saved = now({"counters", "saved_tokens"});
    const double prompt = now({"counters", "prompt_tokens"}).value_or(0);
    tokens("output tokens/s", output_, Style::kBlue,
           fmt::format("{} in all", whole(now({"counters", "output_tokens"}))));
    tokens("prompt saved /s", saved_, Style::kBlue, fmt::format("{}, {}", whole(saved), percent(saved, prompt)));
    tokens("prompt computed /s", computed_, Style::kOrange, whole(now({"counters", "computed_tokens"})));
    all.emplace_back();
  }

  void add_pool(std::vector<Line>& all, std::size_t columns) const {
    const std::optional<double> total = now({"pool", "blocks_total"});
    if (!total) return;
    const double pinned = now({"pool", "blocks_pinned"}).value_or(0);
    const double cached = now({"pool", "blocks_cached"}).value_or(0);
    const std::array<Part, 4> parts = {{{pinned, Style::kDeepBlue, "█"},
                                        {now({"pool", "blocks_reserved"}).value_or(0), Style::kOrange, "▓"},
                                        {std::max(0.0, cached - pinned), Style::kBlue, "▒"},
                                        {now({"pool", "blocks_free"}).value_or(0), Style::kDim, "·"}}};
    Line bar = row_of("block pool");
    add_bar(bar, parts, bar_columns(columns));
    all.push_back(std::move(bar));
    Line legend = row_of(fmt::format("{} blocks", whole(total)));
    const char* names[] = {"pinned", "reserved", "cached", "free"};
    for (std::size_t i = 0; i < parts.size(); ++i) add_legend(legend, names[i], whole(parts[i].count), parts[i]);
    all.push_back(std::move(legend));
  }

  void add_lookups(std::vector<Line>& all, std::size_t columns) const {
    const double lookups = now({"tiers", "dram", "lookups"}).value_or(0);
    const double memory = now({"tiers", "dram", "hits"}).value_or(0);
    const std::optional<double> disk = now({"tiers", "disk", "hits"}), remote = now({"tiers", "remote", "hits"});
    const double found = memory + disk.value_or(0) + remote.value_or(0);
    const std::array<Part, 4> parts = {{{memory, Style::kBlue, "█"},
                                        {disk.value_or(0), Style::kPurple, "▓"},
                                        {remote.value_or(0), Style::kGreen, "▒"},
                                        {std::max(0.0, lookups - found), Style::kDim, "·"}}};
    Line bar = row_of("lookups found in");
    add_bar(bar, parts, bar_columns(columns));
    all.push_back(std::move(bar));
    Line legend = row_of(fmt::format("{} lookups", whole(lookups)));
    add_legend(legend, "memory", percent(memory, lookups), parts[0]);
    if (disk) add_legend(legend, "disk", percent(disk, lookups), parts[1]);
    if (remote) add_legend(legend, "remote store", percent(remote, lookups), parts[2]);
    add_legend(legend, "nowhere", percent(parts[3].count, lookups), parts[3]);
    all.push_back(std::move(legend));
    all.emplace_back();
  }

  void add_workers(std::vector<Line>& all) const {
    Line titles = row_of("worker");
    titles.left("role", 10, Style::kDim).left("state", 10, Style::kDim);
    for (const char* title : {"queued", "running", "restarts", "pid", "busy"})
      titles.right(title, kFigureColumns, Style::kDim);
    all.push_back(std::move(titles));
    for (const Json& worker : reading_->document.value("workers", Json::array())) {
      const std::string state = text_at(worker, "state");
      Line& line = all.emplace_back();
      line.left(text_at(worker, "name"), kNameColumns).left(text_at(worker, "role"), 10);
      line.left(state, 10, state == "ready" ? Style::kGreen : Style::kRed);
      for (const char* name : {"queued", "running", "restarts"})
        line.right(whole(number_at(worker, {name})), kFigureColumns);
      line.right(fmt::format("{:.0f}", number_at(worker, {"pid"}).value_or(0)), kFigureColumns);
      line.right(percent(number_at(worker, {"utilization"}), 1), kFigureColumns);
    }
    all.emplace_back();
  }

  void add_handovers(std::vector<Line>& all, std::size_t rows) const {
    const Json handovers = reading_->document.value("handovers", Json::array());
    if (handovers.empty()) return;
    Line titles = row_of("last hand-overs");
    titles.left("from", 14, Style::kDim).left("to", 14, Style::kDim).left("by", 8, Style::kDim);
    all.push_back(std::move(titles.right("size", 12, Style::kDim).right("ms", kFigureColumns, Style::kDim)));
    for (const Json& one : handovers) {
      if (all.size() >= rows) return;
      const std::string id = text_at(one, "request");
      Line& line = all.emplace_back();
      line.left(id.size() > 18 ? "…" + id.substr(id.size() - 17) : id, kNameColumns);
      line.left(text_at(one, "from"), 14).left(text_at(one, "to"), 14).left(text_at(one, "transfer"), 8);
      line.right(bytes_text(number_at(one, {"bytes"})), 12).right(decimal(number_at(one, {"ms"})), kFigureColumns);
    }
  }

  std::optional<TopReading> reading_;
  History ttft_, itl_, output_, saved_, computed_;
};

// ---- a store --------------------------------------------------------------------------------------------------------

class StoreView final : public TopView {
 public:
  explicit StoreView(TopReading first) { add(std::move(first)); }

  void add(TopReading reading) override {
    const double seconds = reading_ ? to_ms(reading.at - reading_->at) / 1e3 : 0;
    const auto rate = [&](std::string_view name) -> std::optional<double> {
      const auto before = reading_ ? now(name) : std::nullopt, after = reading.samples.find(name);
      if (seconds <= 0 || !before || !after || *after < *before) return std::nullopt;
      return (*after - *before) / seconds;
    };
    lookups_.add(rate("nano_mooncake_lookups_total"));
    puts_.add(rate("master_put_start_requests_total"));
    batches_.add(rate("master_batch_put_start_requests_total"));
    evicted_.add(rate("master_evicted_key_count"));
    reading_ = std::move(reading);
  }

  std::vector<Line> lines(std::size_t columns, std::size_t rows) const override {
    std::vector<Line> all;
    add_contents(all, columns);
    add_work(all);
    add_disk(all);
    add_segments(all, columns, rows);
    return all;
  }

  Json figures() const override {
    Json json;
    for (const auto& [key, name] : kFigures) {
      const std::optional<double> value = now(name);
      if (value) json[key] = static_cast<std::uint64_t>(*value);
    }
    Json segments = Json::array();
    for (const auto& [segment, size] : named("segment_total_capacity_bytes")) {
      Json one;
      one["name"] = segment;
      one["used_bytes"] = static_cast<std::uint64_t>(used_of(segment));
      one["bytes"] = static_cast<std::uint64_t>(size);
      segments.push_back(std::move(one));
    }
    json["segments"] = std::move(segments);
    return json;
  }

 private:
  static constexpr std::pair<const char*, std::string_view> kFigures[] = {
      {"capacity_bytes", "master_total_capacity_bytes"},
      {"used_bytes", "master_allocated_bytes"},
      {"keys", "master_key_count"},
      {"soft_pinned_keys", "master_soft_pin_key_count"},
      {"clients", "master_active_clients"},
      {"lookups", "nano_mooncake_lookups_total"},
      {"hits", "mem_cache_hit_nums_"},
      {"reservations", "nano_mooncake_reservations"},
      {"puts", "master_put_start_requests_total"},
      {"batch_puts", "master_batch_put_start_requests_total"},
      {"puts_without_room", "master_put_start_alloc_failures_total"},
      {"evicted_keys", "master_evicted_key_count"},
      {"evicted_bytes", "master_evicted_size_bytes"},
      {"disk_objects", "nano_mooncake_disk_objects"},
      {"disk_bytes", "nano_mooncake_disk_bytes"},
      {"disk_capacity_bytes", "nano_mooncake_disk_capacity_bytes"},
      {"disk_hits", "nano_mooncake_disk_hits_total"},
      {"disk_errors", "nano_mooncake_disk_errors_total"},
  };

  std::optional<double> now(std::string_view name) const { return reading_->samples.find(name); }
  std::vector<std::pair<std::string, double>> named(const std::string& name) const {
    const auto it = reading_->samples.named.find(name);
    return it == reading_->samples.named.end() ? std::vector<std::pair<std::string, double>>() : it->second;
  }
  double used_of(const std::string& segment) const {
    for (const auto& [name, used] : named("segment_allocated_bytes")) {
      if (name == segment) return used;
    }
    return 0;
  }

  void add_contents(std::vector<Line>& all, std::size_t columns) const {
    const double used = now("master_allocated_bytes").value_or(0);
    const double capacity = now("master_total_capacity_bytes").value_or(0);
    const std::array<Part, 2> parts = {{{used, Style::kBlue, "█"}, {std::max(0.0, capacity - used), Style::kDim, "·"}}};
    Line bar = row_of("memory");
    add_bar(bar, parts, bar_columns(columns));
    all.push_back(std::move(bar));
    Line legend = row_of("");
    legend.add(bytes_text(used), Style::kBold).add(fmt::format(" of {}", bytes_text(capacity)));
    all.push_back(std::move(legend.add(fmt::format("   {}", percent(used, capacity)))));
    Line counts = row_of("objects");
    counts.add(whole(now("master_key_count")), Style::kBold).add("   ");
    const std::pair<const char*, std::string_view> further[] = {{"soft-pinned", "master_soft_pin_key_count"},
                                                                {"being put", "nano_mooncake_reservations"},
                                                                {"clients", "master_active_clients"}};
    for (const auto& [title, name] : further)
      counts.add(fmt::format("{} ", title), Style::kDim).add(whole(now(name))).add("   ");
    all.push_back(std::move(counts));
    all.emplace_back();
  }

  void add_work(std::vector<Line>& all) const {
    Line titles = row_of("");
    all.push_back(std::move(titles.right("now, /s", kFigureColumns, Style::kDim).right("in all", 14, Style::kDim)));
    const auto row = [&](const char* title, const History& history, std::string_view name, const std::string& more) {
      Line line = row_of(title);
      line.right(decimal(history.last()), kFigureColumns, Style::kBold).right(whole(now(name)), 14);
      all.push_back(std::move(line.add("  ").add(history.sparkline(), Style::kBlue).add(more)));
    };
    const std::optional<double> lookups = now("nano_mooncake_lookups_total");
    row("lookups", lookups_, "nano_mooncake_lookups_total",
        fmt::format("  {} found", percent(now("mem_cache_hit_nums_"), lookups.value_or(0))));
    row("puts", puts_, "master_put_start_requests_total",
        fmt::format("  {} found no room", whole(now("master_put_start_alloc_failures_total"))));
    row("batches of puts", batches_, "master_batch_put_start_requests_total", "");
    row("evicted objects", evicted_, "master_evicted_key_count",
        fmt::format("  {}", bytes_text(now("master_evicted_size_bytes"))));
    all.emplace_back();
  }

  void add_disk(std::vector<Line>& all) const {
    const std::optional<double> objects = now("nano_mooncake_disk_objects");
    if (!objects) return;
    Line line = row_of("disk");
    line.add(bytes_text(now("nano_mooncake_disk_bytes")), Style::kBold);
    line.add(fmt::format(" of {}   {} objects   {} read back   {} errors",
                         bytes_text(now("nano_mooncake_disk_capacity_bytes")), whole(objects),
                         whole(now("nano_mooncake_disk_hits_total")), whole(now("nano_mooncake_disk_errors_total"))));
    all.push_back(std::move(line));
    all.emplace_back();
  }

  void add_segments(std::vector<Line>& all, std::size_t columns, std::size_t rows) const {
    for (const auto& [segment, size] : named("segment_total_capacity_bytes")) {
      if (all.size() >= rows) return;
      const double used = used_of(segment);
      const std::array<Part, 2> parts = {{{used, Style::kBlue, "█"}, {size - used, Style::kDim, "·"}}};
      Line line =
          row_of(segment.size() > kNameColumns - 2 ? "…" + segment.substr(segment.size() - kNameColumns + 3) : segment);
      add_bar(line, parts, std::min<std::size_t>(24, bar_columns(columns)));
      line.add(fmt::format("  {} of {}", bytes_text(used), bytes_text(size)));
      all.push_back(std::move(line));
    }
  }

  std::optional<TopReading> reading_;
  History lookups_, puts_, batches_, evicted_;
};

}  // namespace

void History::add(std::optional<double> value) {
  values_.push_back(value);
  if (values_.size() > kKept) values_.pop_front();
}

std::string History::sparkline() const {
  const std::vector<std::optional<double>> values(values_.begin(), values_.end());
  return cli::sparkline(values);
}

std::unique_ptr<TopView> make_top_view(TopReading first) {
  if (first.kind == TopReading::Kind::kStore) return std::make_unique<StoreView>(std::move(first));
  return std::make_unique<ServerView>(std::move(first));
}

}  // namespace nmc::cli
