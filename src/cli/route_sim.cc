// `nano-mooncake route-sim`: what keeping conversations on their nodes costs and brings, on conversations from a seed
// or on a trace.
#include <fmt/ranges.h>

#include <algorithm>

#include "cli/command.h"
#include "cli/exit_code.h"
#include "cli/output.h"
#include "cli/serving_settings.h"
#include "lab/identity.h"
#include "sim/conversations.h"
#include "sim/route_replay.h"
#include "sim/trace_reader.h"

namespace nmc::cli {
namespace {

using sim::ConversationOptions;
using sim::ConversationResult;
using sim::ReplayOptions;
using sim::ReplayResult;

constexpr std::string_view kServingFlags[] = {"log-level"};
constexpr const char* kNote = "This is a simulation; it shows no latency or bandwidth of a real system.";
// Of one kind of run only, so that a flag that does nothing is refused.
constexpr std::string_view kTalkFlags[] = {"per-node", "unreserved",   "load-by",      "arrivals",      "turn-counts",
                                           "turns",    "first-tokens", "added-tokens", "answer-tokens", "sigma",
                                           "think-s",  "context-max",  "warmup-turns", "measured-turns"};
constexpr std::string_view kTraceFlags[] = {"routers", "capacity-blocks", "chunk-size", "sort", "window-s"};
// A node that computes 8,000 tokens a second has done so many by the end of the window in which they came.
constexpr double kTraceFloor = 480'000;

router::CliqueOptions policy_of(const Settings& settings, double floor) {
  return {.overload_factor = settings.seconds("overload-factor"),
          .overload_floor = settings.has("overload-floor") ? settings.seconds("overload-floor") : floor,
          .checks_destination = !settings.on("unchecked-destination")};
}

Json json_of(const router::CliqueOptions& policy) {
  return {{"overload_factor", policy.overload_factor},
          {"overload_floor", policy.overload_floor},
          {"checks_destination", policy.checks_destination}};
}

// What is given but belongs to the other kind of run.
Result<void> refuse(const Settings& settings, std::span<const std::string_view> flags, const char* why) {
  for (const EffectiveValue& value : settings.all()) {
    if (value.origin == Origin::kDefault || std::ranges::find(flags, value.setting.name) == flags.end()) continue;
    return invalid_argument("{}: {}", settings.where(value.setting.name), why);
  }
  return {};
}

// ---- conversations ----

ConversationOptions conversation_options(const Settings& settings) {
  ConversationOptions options;
  options.nodes = settings.bytes("nodes");
  options.per_node = settings.bytes("per-node");
  options.policy = policy_of(settings, 0);
  options.reserve = !settings.on("unreserved");
  options.load_by = settings.text("load-by") == "context" ? sim::LoadBy::kContext : sim::LoadBy::kConversations;
  options.arrivals = settings.text("arrivals") == "open" ? sim::Arrivals::kOpen : sim::Arrivals::kClosed;
  options.turn_counts =
      settings.text("turn-counts") == "pareto" ? sim::TurnCounts::kPareto : sim::TurnCounts::kGeometric;
  options.turns = settings.seconds("turns");
  options.first_tokens = settings.seconds("first-tokens");
  options.added_tokens = settings.seconds("added-tokens");
  options.answer_tokens = settings.seconds("answer-tokens");
  options.sigma = settings.seconds("sigma");
  options.think_s = settings.seconds("think-s");
  options.context_max = settings.bytes("context-max");
  options.warmup_turns = settings.bytes("warmup-turns");
  options.measured_turns = settings.bytes("measured-turns");
  return options;
}

double share(double part, double whole) { return whole > 0 ? part / whole : 0; }

struct TalkRow {
  std::string seed;  // or "all"
  ConversationResult result;
};

double extra_of(const ConversationResult& result) { return share(result.extra_prefill_tokens, result.prefill_tokens); }

// Sums, and the highest peak.
ConversationResult total_of(const std::vector<TalkRow>& rows) {
  ConversationResult total;
  for (const TalkRow& row : rows) {
    total.turns += row.result.turns;
    total.conversations += row.result.conversations;
    total.moved_conversations += row.result.moved_conversations;
    total.moves += row.result.moves;
    total.overloaded_turns += row.result.overloaded_turns;
    total.denied_moves += row.result.denied_moves;
    total.prefill_tokens += row.result.prefill_tokens;
    total.extra_prefill_tokens += row.result.extra_prefill_tokens;
    total.peak = std::max(total.peak, row.result.peak);
  }
  return total;
}

Json json_of(const TalkRow& row) {
  const ConversationResult& result = row.result;
  const auto turns = static_cast<double>(result.turns);
  return {{"seed", row.seed},
          {"turns", result.turns},
          {"conversations", result.conversations},
          {"moved_conversations", result.moved_conversations},
          {"moved_share",
           share(static_cast<double>(result.moved_conversations), static_cast<double>(result.conversations))},
          {"moves", result.moves},
          {"moves_per_turn", share(static_cast<double>(result.moves), turns)},
          {"overloaded_turns", result.overloaded_turns},
          {"denied_moves", result.denied_moves},
          {"prefill_tokens", result.prefill_tokens},
          {"extra_prefill_tokens", result.extra_prefill_tokens},
          {"extra_prefill_share", extra_of(result)},
          {"peak_load_by_mean", result.peak}};
}

std::vector<Cell> cells_of(const TalkRow& row) {
  const ConversationResult& result = row.result;
  const auto percent = [](double of) { return Cell(100 * of, 3); };
  return {row.seed,
          Cell(result.turns),
          Cell(result.conversations),
          percent(share(static_cast<double>(result.moved_conversations), static_cast<double>(result.conversations))),
          Cell(result.moves),
          Cell(result.denied_moves),
          percent(extra_of(result)),
          Cell(result.peak, 2)};
}

Json options_json(const ConversationOptions& options, const Settings& settings) {
  return {{"nodes", options.nodes},
          {"per_node", options.per_node},
          {"policy", json_of(options.policy)},
          {"reserve", options.reserve},
          {"load_by", settings.text("load-by")},
          {"arrivals", settings.text("arrivals")},
          {"turn_counts", settings.text("turn-counts")},
          {"turns", options.turns},
          {"first_tokens", options.first_tokens},
          {"added_tokens", options.added_tokens},
          {"answer_tokens", options.answer_tokens},
          {"sigma", options.sigma},
          {"think_s", options.think_s},
          {"context_max", options.context_max},
          {"warmup_turns", options.warmup_turns},
          {"measured_turns", options.measured_turns}};
}

Result<Report> run_conversations(const Settings& settings) {
  NMC_RETURN_IF_ERROR(refuse(settings, kTraceFlags, "expected together with --trace"));
  ConversationOptions options = conversation_options(settings);
  std::vector<TalkRow> rows;
  for (const std::int64_t seed : settings.integers("seeds")) {
    options.seed = static_cast<std::uint64_t>(seed);
    NMC_ASSIGN_OR_RETURN(const ConversationResult result, simulate_conversations(options));
    rows.push_back({std::to_string(seed), result});
  }
  rows.push_back({"all", total_of(rows)});
  Json workload = options_json(options, settings);
  for (const char* name : {"policy", "reserve"}) workload.erase(name);
  workload.update({{"kind", "conversations"}, {"seeds", settings.integers("seeds")}});
  Report report;
  report.json = {{"schema", "nano-mooncake/route-sim/v1"},
                 {"provenance", lab::simulation_provenance_json(std::move(workload))},
                 {"note", kNote},
                 {"assumptions",
                  {"no transfer between nodes", "a node's cache never loses a live conversation",
                   "a move computes the whole context again"}},
                 {"options", options_json(options, settings)},
                 {"conversations", Json::array()}};
  report.table.columns = {"seed",  "turns",  "conversations",   "moved %",
                          "moves", "denied", "extra prefill %", "peak load / mean"};
  for (const TalkRow& row : rows) {
    report.json["conversations"].push_back(json_of(row));
    report.table.rows.push_back(cells_of(row));
  }
  report.text = fmt::format(
      "{} nodes, {} conversations each, factor {:g}, floor {:g} tokens{}{}\n\n{}\nNo transfer between nodes; a move "
      "computes the whole context again. {}\n",
      options.nodes, options.per_node, options.policy.overload_factor, options.policy.overload_floor,
      options.reserve ? "" : ", newcomers unreserved",
      options.policy.checks_destination ? "" : ", destinations unchecked", format_table(report.table), kNote);
  return report;
}

// ---- a trace ----

Result<std::vector<std::string>> routers_of(const Settings& settings) {
  const auto known = sim::replay_routers();
  const std::string& asked = settings.text("routers");
  if (asked == "all") return std::vector<std::string>(known.begin(), known.end());
  std::vector<std::string> routers;
  std::string_view rest = asked;
  for (;;) {
    const std::size_t comma = rest.find(',');
    const std::string_view name = rest.substr(0, comma);
    if (std::ranges::find(known, name) == known.end()) {
      return invalid_argument("{}: \"{}\": expected all, or one or more of {}, separated by commas",
                              settings.where("routers"), name, fmt::join(known, ", "));
    }
    routers.emplace_back(name);
    if (comma == std::string_view::npos) return routers;
    rest.remove_prefix(comma + 1);
  }
}

Json json_of(const std::string& router, const ReplayResult& result, std::uint64_t nodes) {
  return {{"router", router},
          {"requests", result.requests},
          {"conversations", result.conversations},
          {"blocks", result.blocks},
          {"hit_blocks", result.hit_blocks},
          {"hit_share", share(static_cast<double>(result.hit_blocks), static_cast<double>(result.blocks))},
          {"input_tokens", result.input_tokens},
          {"uncached_tokens", result.uncached_tokens},
          {"moves", result.moves},
          {"overloaded", result.overloaded},
          {"imbalance", result.imbalance(nodes)}};
}

Result<Report> run_trace(const Settings& settings) {
  NMC_RETURN_IF_ERROR(refuse(settings, kTalkFlags, "expected without --trace"));
  NMC_ASSIGN_OR_RETURN(const std::vector<std::string> routers, routers_of(settings));
  const sim::TraceOptions reading{.block_tokens = static_cast<std::uint32_t>(settings.integer("chunk-size")),
                                  .sort = settings.on("sort")};
  NMC_ASSIGN_OR_RETURN(const sim::Trace trace, sim::read_trace(settings.text("trace"), reading));
  ReplayOptions options;
  options.nodes = settings.bytes("nodes");
  options.capacity_blocks = settings.bytes("capacity-blocks");
  options.policy = policy_of(settings, kTraceFloor);
  options.window = Nanos(static_cast<std::int64_t>(settings.seconds("window-s") * 1e9));
  options.seed = static_cast<std::uint64_t>(settings.integers("seeds").front());
  Report report;
  report.json = {
      {"schema", "nano-mooncake/route-sim/v1"},
      {"provenance", lab::simulation_provenance_json({{"kind", "trace"}, {"digest", sim::digest_of(trace).hex()}})},
      {"note", kNote},
      {"assumptions",
       {"requests in order, what one computes the next finds", "hits are cached blocks behind cached ones",
        "load is the uncached tokens sent to a node within the window",
        "a conversation is a session, or a chain of requests that share a block beyond the first"}},
      {"trace", trace.name()},
      {"options",
       {{"nodes", options.nodes},
        {"capacity_blocks", options.capacity_blocks},
        {"block_tokens", trace.block_tokens()},
        {"window_s", settings.seconds("window-s")},
        {"policy", json_of(options.policy)}}},
      {"routers", Json::array()}};
  report.table.columns = {"router", "hit blocks", "of", "hit share", "uncached tokens", "moves", "imbalance"};
  for (const std::string& router : routers) {
    NMC_ASSIGN_OR_RETURN(const ReplayResult result, sim::replay_routed(trace, router, options));
    report.json["routers"].push_back(json_of(router, result, options.nodes));
    report.table.rows.push_back(
        {router, Cell(result.hit_blocks), Cell(result.blocks),
         Cell(share(static_cast<double>(result.hit_blocks), static_cast<double>(result.blocks)), 4),
         Cell(result.uncached_tokens), Cell(result.moves), Cell(result.imbalance(options.nodes), 2)});
  }
  report.text = fmt::format(
      "{}: {} requests on {} nodes of {} blocks; cliques: factor {:g}, floor {:g} tokens in {:g} s\n\n{}\nImbalance is "
      "the busiest node's uncached tokens by the mean of all. {}\n",
      trace.name(), trace.requests().size(), options.nodes, options.capacity_blocks, options.policy.overload_factor,
      options.policy.overload_floor, settings.seconds("window-s"), format_table(report.table), kNote);
  return report;
}

Result<int> run(const Settings& settings) {
  NMC_ASSIGN_OR_RETURN(const Report report, settings.has("trace") ? run_trace(settings) : run_conversations(settings));
  NMC_RETURN_IF_ERROR(write_report(report, settings));
  return kExitDone;
}

// ---- flags ----

Setting flag(Setting setting) {
  setting.source = Source::kFlagOnly;
  return setting;
}
Setting whole(const char* name, const char* default_text, const char* help, std::int64_t low, std::int64_t high) {
  return flag({.name = name,
               .kind = Kind::kInteger,
               .placeholder = "N",
               .default_text = default_text,
               .help = help,
               .low = low,
               .high = high});
}
Setting number(const char* name, const char* default_text, const char* help) {
  return flag({.name = name,
               .kind = Kind::kNumber,
               .placeholder = "X",
               .default_text = default_text,
               .help = help,
               .low = 0,
               .high = std::int64_t{1} << 40});
}
Setting on_or_off(const char* name, const char* help) {
  return flag({.name = name, .kind = Kind::kSwitch, .default_text = "false", .help = help});
}
Setting choice(const char* name, std::vector<std::string> choices, const char* help) {
  const std::string first = choices.front();
  return flag(
      {.name = name, .kind = Kind::kChoice, .default_text = first, .help = help, .choices = std::move(choices)});
}

std::vector<Setting> route_settings() {
  constexpr std::int64_t kMany = 1'000'000'000;
  return {
      flag({.name = "trace",
            .placeholder = "FILE",
            .help = "Replay these requests, as `nano-mooncake simulate` reads them, through routers instead."}),
      whole("nodes", "8", "Nodes, each with a cache of its own.", 1, 4096),
      number("overload-factor", "2", "A node is overloaded above so many times the mean load of all, more than 1."),
      number("overload-floor", "",
             "And above so many tokens. Default: 0; of a trace 480000, what a node that computes 8000 a second has "
             "done by the end of the window in which they came."),
      on_or_off("unchecked-destination", "Move also where that overloads the other node."),
      flag({.name = "seeds",
            .kind = Kind::kIntegers,
            .placeholder = "N,...",
            .default_text = "11,12,13,14",
            .help = "One run each; of a trace the first, for router random.",
            .low = 0}),
      whole("per-node", "8", "Conversations of a node, on average.", 1, 100'000),
      on_or_off(
          "unreserved",
          "A newcomer picks its node one think time before it weighs anything there, so that many pick the same."),
      choice("load-by", {"context", "conversations"},
             "What a node's load is: tokens of live contexts, or their number."),
      choice("arrivals", {"closed", "open"}, "Who has had its turns is replaced by another, or others come at random."),
      choice("turn-counts", {"geometric", "pareto"}, "How the turns of a conversation are distributed."),
      number("turns", "12", "Mean of a conversation, more than 1."),
      number("first-tokens", "4000", "Mean of a first prompt; log-normal."),
      number("added-tokens", "400", "Mean of what a later turn adds; log-normal."),
      number("answer-tokens", "400", "Mean of an answer; exponential."),
      number("sigma", "0.8", "Of the log-normals."),
      number("think-s", "60", "Mean seconds between two turns; exponential."),
      whole("context-max", "128000", "Tokens of a context at most.", 1, kMany),
      whole("warmup-turns", "40000", "Turns before those that count.", 0, kMany),
      whole("measured-turns", "180000", "Turns that count.", 1, kMany),
      flag({.name = "routers",
            .placeholder = "NAME,...",
            .default_text = "all",
            .help = "With --trace: one-pool, random, round-robin, least-load, prefix, least-tokens, hash, cliques, "
                    "prefix+load, or all."}),
      whole("capacity-blocks", "5859", "With --trace: blocks that a node's cache holds.", 1, kMany),
      whole("chunk-size", "512", "With --trace: tokens of a block.", 1, 1 << 20),
      on_or_off("sort", "With --trace: put its requests in order first."),
      number("window-s", "60", "With --trace: seconds for which sent tokens are a node's load."),
  };
}

}  // namespace

Command route_sim_command() {
  Command command{
      .name = "route-sim",
      .summary = "what keeping conversations on their nodes costs and brings",
      .purpose =
          "Conversations over nodes whose caches are their own, by the router's own policy: a conversation stays on "
          "its node; if that is overloaded its next turn goes to the least loaded one, where it then stays. Tells how "
          "many move, what computing their contexts again adds to prefill, and how even the nodes are. With --trace: "
          "the hits and the balance of that policy and others on recorded requests. With --overload-floor 0 and "
          "--unreserved it is the plainest such policy. It is a simulation: without time, and without a model.",
      .settings = route_settings(),
      .exit_codes = {kExitDone, kExitWrongInput, kExitNotDone, kExitInterrupted},
      .example = "nano-mooncake route-sim --per-node 32 --sigma 1",
      .run = run,
  };
  for (Setting& setting : serving_settings_for(kServingFlags)) command.settings.push_back(std::move(setting));
  for (Setting& setting : report_settings()) command.settings.push_back(std::move(setting));
  return command;
}

}  // namespace nmc::cli
