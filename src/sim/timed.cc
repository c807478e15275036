#include "sim/timed.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/check.h"

namespace nmc::sim {
namespace {

enum class Stage : std::uint8_t { kBefore, kLookup, kDisk, kNetwork, kPrefill, kHandOver, kDecode, kGone };

struct Live {
  Station::Ticket ticket = 0;
  std::uint32_t hits = 0;
  Stage stage = Stage::kBefore;
  std::uint64_t fetch_bytes = 0;  // over the network
  std::uint64_t disk_bytes = 0;
};

class Run {
 public:
  Run(const Trace& trace, const TimedOptions& options, BlockCache memory, BlockCache disk)
      : trace_(trace),
        options_(options),
        memory_(std::move(memory)),
        disk_(std::move(disk)),
        network_station_(events_, 1, options.queue_policy),
        prefill_station_(events_, options.prefill_workers, options.queue_policy),
        decode_station_(events_, options.decode_slots, QueuePolicy::kFcfs),
        disk_station_(events_, 1, QueuePolicy::kFcfs),
        live_(trace.requests().size()),
        computing_(trace.blocks_unique()),
        resident_tokens_(trace.blocks_unique()) {
    ttft_ms_.reserve(live_.size());
    e2e_ms_.reserve(live_.size());
  }

  TimedResult run() {
    events_.at(0, [this] { arrive(0); });
    events_.run();
    finish();
    return std::move(result_);
  }

 private:
  const TraceRequest& request(std::uint32_t i) const { return trace_.requests()[i]; }
  std::span<const std::uint32_t> blocks(std::uint32_t i) const { return trace_.blocks_of(request(i)); }
  SimNanos arrival(std::uint32_t i) const {
    return sim_nanos(static_cast<double>(request(i).arrival_us - request(0).arrival_us) * 1e-6 * options_.time_scale);
  }
  std::uint32_t tokens_of(std::uint32_t i, std::size_t index) const {
    const std::uint64_t from = std::uint64_t{trace_.block_tokens()} * index;
    return static_cast<std::uint32_t>(std::min<std::uint64_t>(trace_.block_tokens(), request(i).input_tokens - from));
  }
  std::uint64_t bytes_of_tokens(std::uint64_t tokens) const {
    return static_cast<std::uint64_t>(static_cast<double>(tokens) * options_.cost.bytes_per_token + 0.5);
  }
  SimNanos network_time(std::uint64_t bytes) const {
    return sim_nanos(static_cast<double>(bytes) / options_.network_bytes_per_s);
  }
  SimNanos disk_time(std::uint64_t bytes) const {
    return sim_nanos(static_cast<double>(bytes) / options_.disk_bytes_per_s);
  }
  SimNanos deadline(std::uint32_t i) const { return arrival(i) + sim_nanos(options_.slo_ttft_s); }

  void arrive(std::uint32_t i);
  void look_up(std::uint32_t i);
  void fetch_over_network(std::uint32_t i);
  void give_up_fetch(std::uint32_t i);
  void compute(std::uint32_t i);
  void end_prefill(std::uint32_t i);
  void take_in(std::uint32_t i);
  void decode(std::uint32_t i);
  void depart(std::uint32_t i);
  void check_all_are_somewhere() const;
  void finish();

  const Trace& trace_;
  const TimedOptions& options_;
  EventQueue events_;
  BlockCache memory_, disk_;
  Station network_station_, prefill_station_, decode_station_, disk_station_;
  std::vector<Live> live_;
  std::vector<std::uint32_t> computing_;        // by block: requests that are computing it
  std::vector<std::uint32_t> resident_tokens_;  // by block: of what is in memory
  std::vector<std::uint32_t> gone_;
  std::uint64_t uses_arrived_ = 0;
  SimNanos end_ = 0;  // when the last request left or the last write to disk ended; timers may run out later
  std::uint64_t arrived_ = 0, departed_ = 0, in_lookup_ = 0, disk_writes_ = 0;
  std::vector<double> ttft_ms_, e2e_ms_;
  TimedResult result_;
};

void Run::arrive(std::uint32_t i) {
  if (i + 1 < live_.size()) events_.at(arrival(i + 1), [this, i] { arrive(i + 1); });
  ++arrived_;
  ++in_lookup_;
  live_[i].stage = Stage::kLookup;
  uses_arrived_ += blocks(i).size();
  if (uses_arrived_ > 0) memory_.advance(uses_arrived_ - 1);
  events_.after(sim_nanos(options_.lookup_s), [this, i] { look_up(i); });
}

void Run::look_up(std::uint32_t i) {
  Live& live = live_[i];
  --in_lookup_;
  const auto all = blocks(i);
  std::size_t found = 0;
  for (; found < all.size(); ++found) {
    const bool in_memory = memory_.has(all[found]);
    if (!in_memory && !disk_.has(all[found])) break;
    const std::uint64_t bytes = bytes_of_tokens(tokens_of(i, found));
    live.fetch_bytes += bytes;
    if (!in_memory) {
      live.disk_bytes += bytes;
      ++result_.found_disk_blocks;
    }
  }
  for (std::size_t k = found; k < all.size(); ++k) result_.in_flight_blocks += computing_[all[k]] > 0 ? 1 : 0;
  for (const std::uint32_t block : all) {
    result_.hits.any_hit_blocks += memory_.has(block) || disk_.has(block) ? 1 : 0;
  }
  result_.found_blocks += found;
  live.hits = static_cast<std::uint32_t>(found);
  if (found == 0) {
    compute(i);
    return;
  }
  if (options_.prefetch_deadline_s) {
    events_.after(sim_nanos(*options_.prefetch_deadline_s), [this, i] { give_up_fetch(i); });
  }
  if (live.disk_bytes == 0) {
    fetch_over_network(i);
    return;
  }
  live.stage = Stage::kDisk;
  live.ticket = disk_station_.submit({.service = disk_time(live.disk_bytes), .done = [this, i] {
                                        result_.disk_read_bytes += live_[i].disk_bytes;
                                        fetch_over_network(i);
                                      }});
}

void Run::fetch_over_network(std::uint32_t i) {
  Live& live = live_[i];
  live.stage = Stage::kNetwork;
  live.ticket =
      network_station_.submit({.service = network_time(live.fetch_bytes), .deadline = deadline(i), .done = [this, i] {
                                 result_.network_read_bytes += live_[i].fetch_bytes;
                                 compute(i);
                               }});
}

// Whole blocks that have arrived count; what else was read was read in vain.
void Run::give_up_fetch(std::uint32_t i) {
  Live& live = live_[i];
  if (live.stage != Stage::kDisk && live.stage != Stage::kNetwork) return;
  ++result_.fetches_cut;
  if (live.stage == Stage::kDisk) {
    const double part = disk_station_.withdraw(live.ticket);
    result_.disk_read_bytes += static_cast<std::uint64_t>(part * static_cast<double>(live.disk_bytes));
    live.hits = 0;
  } else {
    const double part = network_station_.withdraw(live.ticket);
    auto left = static_cast<std::uint64_t>(part * static_cast<double>(live.fetch_bytes));
    result_.network_read_bytes += left;
    std::uint32_t whole = 0;
    for (; whole < live.hits; ++whole) {
      const std::uint64_t bytes = bytes_of_tokens(tokens_of(i, whole));
      if (bytes > left) break;
      left -= bytes;
    }
    live.hits = whole;
  }
  compute(i);
}

void Run::compute(std::uint32_t i) {
  Live& live = live_[i];
  live.stage = Stage::kPrefill;
  const std::uint64_t tokens = request(i).input_tokens;
  const std::uint64_t hit_tokens = std::uint64_t{live.hits} * trace_.block_tokens();
  const std::uint64_t cached = std::min(hit_tokens, tokens - 1);
  HitCounts& hits = result_.hits;
  hits.hit_blocks += live.hits;
  hits.hit_tokens += std::min(hit_tokens, tokens);
  hits.hit_tokens_capped += cached;
  hits.some_hit_requests += live.hits > 0 ? 1 : 0;
  hits.full_hit_requests += live.hits == blocks(i).size() ? 1 : 0;
  result_.computed_tokens += tokens - cached;
  for (const std::uint32_t block : blocks(i).subspan(live.hits)) ++computing_[block];
  const double seconds = options_.cost.prefill.prompt_s(static_cast<double>(cached), static_cast<double>(tokens));
  live.ticket = prefill_station_.submit(
      {.service = sim_nanos(seconds), .deadline = deadline(i), .done = [this, i] { end_prefill(i); }});
}

void Run::end_prefill(std::uint32_t i) {
  Live& live = live_[i];
  const double ttft_s = sim_seconds(events_.now() - arrival(i));
  ttft_ms_.push_back(ttft_s * 1000);
  result_.requests_in_slo += ttft_s <= options_.slo_ttft_s ? 1 : 0;
  for (const std::uint32_t block : blocks(i).subspan(live.hits)) --computing_[block];
  take_in(i);
  const std::uint64_t tokens = request(i).input_tokens;
  const std::uint64_t cached = std::min<std::uint64_t>(std::uint64_t{live.hits} * trace_.block_tokens(), tokens - 1);
  const std::uint64_t bytes = bytes_of_tokens(tokens - cached);
  live.stage = Stage::kHandOver;
  live.ticket =
      network_station_.submit({.service = network_time(bytes), .deadline = deadline(i), .done = [this, i, bytes] {
                                 result_.network_written_bytes += bytes;
                                 decode(i);
                               }});
}

void Run::take_in(std::uint32_t i) {
  const auto all = blocks(i);
  gone_.clear();
  for (std::uint32_t k = 0; k < all.size(); ++k) {
    const store::Use use = use_of(trace_, request(i), all[k], k, options_.cost);
    if (disk_.has(all[k])) disk_.use(all[k], use);
    if (!memory_.has(all[k]) && memory_.capacity() > 0) {
      resident_tokens_[all[k]] = tokens_of(i, k);
      result_.inserted_bytes += bytes_of_tokens(resident_tokens_[all[k]]);
    }
    const std::size_t before = gone_.size();
    memory_.use(all[k], use, &gone_);
    for (std::size_t g = before; g < gone_.size(); ++g) {
      result_.evicted_bytes += bytes_of_tokens(resident_tokens_[gone_[g]]);
    }
  }
  std::uint64_t bytes = 0;
  for (const std::uint32_t block : gone_) {
    if (disk_.capacity() == 0 || disk_.has(block)) continue;
    disk_.use(block, {.key = trace_.key_of(block)});
    bytes += bytes_of_tokens(resident_tokens_[block]);
  }
  if (bytes == 0) return;
  ++disk_writes_;
  result_.disk_written_bytes += bytes;
  disk_station_.submit({.service = disk_time(bytes), .done = [this] {
                          --disk_writes_;
                          end_ = events_.now();
                        }});
}

void Run::decode(std::uint32_t i) {
  live_[i].stage = Stage::kDecode;
  const std::uint32_t tokens = std::max<std::uint32_t>(1, request(i).output_tokens) - 1;  // prefill gave the first
  live_[i].ticket = decode_station_.submit(
      {.service = sim_nanos(tokens * options_.decode_token_s), .done = [this, i] { depart(i); }});
}

void Run::depart(std::uint32_t i) {
  live_[i].stage = Stage::kGone;
  ++departed_;
  e2e_ms_.push_back(sim_seconds(events_.now() - arrival(i)) * 1000);
  end_ = events_.now();
  result_.makespan_s = sim_seconds(end_);
  check_all_are_somewhere();
}

void Run::check_all_are_somewhere() const {
  const auto here = [](const Station& station) { return station.waiting() + station.in_service(); };
  const std::uint64_t requests = in_lookup_ + here(network_station_) + here(prefill_station_) + here(decode_station_) +
                                 here(disk_station_) - disk_writes_;
  NMC_ASSERT(arrived_ == departed_ + requests, "arrived={} departed={} here={}", arrived_, departed_, requests);
}

void Run::finish() {
  check_all_are_somewhere();
  NMC_ASSERT(departed_ == live_.size(), "departed={} requests={}", departed_, live_.size());
  HitCounts& hits = result_.hits;
  hits.requests = departed_;
  hits.blocks = trace_.blocks_total();
  hits.input_tokens = trace_.input_tokens_total();
  hits.inserted_blocks = memory_.inserted();
  hits.evicted_blocks = memory_.evicted();
  for (std::uint32_t block = 0; block < resident_tokens_.size(); ++block) {
    if (!memory_.has(block)) continue;
    ++hits.resident_blocks;
    result_.resident_bytes += bytes_of_tokens(resident_tokens_[block]);
  }
  NMC_ASSERT(hits.inserted_blocks == hits.evicted_blocks + hits.resident_blocks, "inserted={} evicted={} here={}",
             hits.inserted_blocks, hits.evicted_blocks, hits.resident_blocks);
  NMC_ASSERT(result_.inserted_bytes == result_.evicted_bytes + result_.resident_bytes, "inserted={} evicted={} here={}",
             result_.inserted_bytes, result_.evicted_bytes, result_.resident_bytes);
  NMC_ASSERT(hits.hit_tokens_capped + result_.computed_tokens == hits.input_tokens, "hit={} computed={} input={}",
             hits.hit_tokens_capped, result_.computed_tokens, hits.input_tokens);
  result_.ttft_ms = percentiles_of(std::move(ttft_ms_));
  result_.e2e_ms = percentiles_of(std::move(e2e_ms_));
  const std::pair<const char*, const Station*> stations[] = {{"network", &network_station_},
                                                             {"prefill", &prefill_station_},
                                                             {"decode", &decode_station_},
                                                             {"disk", &disk_station_}};
  const std::uint32_t servers[] = {1, options_.prefill_workers, options_.decode_slots, 1};
  for (std::size_t s = 0; s < std::size(stations); ++s) {
    const auto& [name, station] = stations[s];
    station->check_conserved();
    const QueueSeries& series = station->waiting_over_time();
    const double time_s = sim_seconds(end_);
    const double busy = time_s == 0 ? 0 : sim_seconds(station->totals().busy) / time_s / servers[s];
    result_.stations[s] = {name,         servers[s],        station->totals(), busy, series.mean(end_),
                           series.max(), series.means(end_)};
  }
  QueueSeries ended = network_station_.waiting_over_time();
  ended.change(end_, 0);
  result_.interval_s = sim_seconds(ended.interval());
}

}  // namespace

Percentiles percentiles_of(std::vector<double> values) {
  if (values.empty()) return {};
  std::sort(values.begin(), values.end());
  const auto at = [&values](double part) {
    const double rank = std::ceil(part * static_cast<double>(values.size()));
    return values[static_cast<std::size_t>(std::max(rank, 1.0)) - 1];
  };
  const double mean = std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
  return {at(0.5), at(0.95), at(0.99), mean, values.back(), values.size()};
}

Result<TimedResult> simulate_timed(const Trace& trace, std::string_view policy, const TimedOptions& options) {
  NMC_REQUIRE(!trace.requests().empty() && options.network_bytes_per_s > 0 && options.disk_bytes_per_s > 0);
  NMC_ASSIGN_OR_RETURN(BlockCache memory, BlockCache::create(policy, options.memory_blocks, trace));
  NMC_ASSIGN_OR_RETURN(BlockCache disk, BlockCache::create("lru", options.disk_blocks, trace));
  return Run(trace, options, std::move(memory), std::move(disk)).run();
}

}  // namespace nmc::sim
