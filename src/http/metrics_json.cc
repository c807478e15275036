#include "http/metrics_json.h"

#include <nlohmann/json.hpp>
#include <optional>

namespace nmc::http {
namespace {

Json queue_json(const engine::RuntimeStatus& status) {
  Json json;
  json["queued"] = status.queued;
  json["running"] = status.running;
  json["max_queue"] = status.max_queue;
  json["max_running"] = status.max_running;
  return json;
}

Json requests_json(const engine::RuntimeCounters& counters, std::uint64_t ended_by_stop_string) {
  Json json;
  json["received"] = counters.requests_received;
  json["finished"] = counters.requests_finished + ended_by_stop_string;
  json["cancelled"] = counters.requests_cancelled - ended_by_stop_string;
  json["failed"] = counters.requests_failed;
  json["rejected"] = counters.requests_rejected;
  return json;
}

Json pool_json(const store::StoreStats& stats) {
  Json json;
  json["blocks_total"] = stats.blocks_total;
  json["blocks_free"] = stats.blocks_total - std::min(stats.blocks_total, stats.blocks_reserved + stats.blocks_cached);
  json["blocks_reserved"] = stats.blocks_reserved;
  json["blocks_pinned"] = stats.blocks_pinned;
  json["blocks_cached"] = stats.blocks_cached;
  return json;
}

Json tiers_json(const store::StoreStats& stats) {
  Json dram;
  dram["bytes_total"] = stats.segment_bytes;
  dram["bytes_used"] = stats.used_bytes;
  dram["tail_bytes"] = stats.tail_bytes;
  dram["limbo_bytes"] = stats.limbo_bytes;
  dram["objects"] = stats.objects;
  dram["lookups"] = stats.lookups;
  dram["hits"] = stats.hits;
  dram["misses"] = stats.misses;
  dram["commits"] = stats.commits;
  dram["evicted_objects"] = stats.evicted_objects;
  dram["evicted_bytes"] = stats.evicted_bytes;
  Json json;
  json["dram"] = std::move(dram);
  if (stats.remote) {
    Json remote;
    remote["hits"] = stats.remote_hits;
    remote["written_bytes"] = stats.remote_written_bytes;
    remote["read_bytes"] = stats.remote_read_bytes;
    remote["write_dropped"] = stats.remote_write_dropped;
    remote["errors"] = stats.remote_errors;
    json["remote"] = std::move(remote);
  }
  if (!stats.disk) return json;
  Json disk;
  disk["bytes_total"] = stats.disk_cap_bytes;
  disk["bytes_used"] = stats.disk_used_bytes;
  disk["objects"] = stats.disk_objects;
  disk["hits"] = stats.disk_hits;
  disk["written_bytes"] = stats.disk_written_bytes;
  disk["read_bytes"] = stats.disk_read_bytes;
  disk["write_dropped"] = stats.disk_write_dropped;
  disk["errors"] = stats.disk_errors;
  disk["quarantined_bytes"] = stats.quarantined_bytes;
  json["disk"] = std::move(disk);
  return json;
}

Json workers_json(const std::vector<engine::WorkerStatus>& workers) {
  Json json = Json::array();
  for (const engine::WorkerStatus& worker : workers) {
    Json one;
    one["name"] = worker.name;
    one["role"] = worker.role;
    one["pid"] = worker.pid;
    one["state"] = worker.state;
    one["restarts"] = worker.restarts;
    one["queued"] = worker.queued;
    one["running"] = worker.running;
    one["utilization"] = worker.utilization;
    json.push_back(std::move(one));
  }
  return json;
}

Json handovers_json(const std::vector<engine::HandoverRecord>& handovers) {
  Json json = Json::array();
  for (const engine::HandoverRecord& handover : handovers) {
    Json one;
    one["request"] = handover.request_id;
    one["from"] = handover.from;
    one["to"] = handover.to;
    one["transfer"] = handover.transfer;
    one["bytes"] = handover.bytes;
    one["ms"] = handover.ms;
    json.push_back(std::move(one));
  }
  return json;
}

Json counters_json(const engine::RuntimeCounters& counters, const std::optional<store::StoreStats>& stats) {
  Json json;
  json["prompt_tokens"] = counters.prompt_tokens;
  json["computed_tokens"] = counters.computed_tokens;
  json["saved_tokens"] = counters.saved_tokens;
  json["output_tokens"] = counters.output_tokens;
  json["hit_blocks"] = counters.hit_blocks;
  json["preemptions"] = counters.preemptions;
  json["steps"] = counters.steps;
  json["snapshot_bytes"] = counters.snapshot_bytes;
  json["transfer_bytes"] = counters.transfer_bytes;
  json["leaked_handles"] = counters.leaked_handles;
  json["residual_slots"] = counters.residual_slots;
  json["quarantined_entries"] = stats ? Json(stats->quarantined_entries) : Json("not_available");
  json["worker_failures"] = counters.worker_failures;
  return json;
}

}  // namespace

Json metrics_json(const ServerState& state) {
  // Read before the runtime's counters: each of these cancellations is in them by then.
  const std::uint64_t ended_by_stop_string = state.ended_by_stop_string.load();
  const engine::RuntimeStatus status = state.runtime.status();
  const engine::RuntimeOptions& options = state.runtime.options();
  std::optional<store::StoreStats> stats;
  if (state.store != nullptr) stats = state.store->stats();

  Json json;
  json["schema"] = "nano-mooncake/metrics/v1";
  json["model"] = state.options.served_model_name;
  json["mode"] = engine::mode_name(options.mode);
  json["reuse"] = engine::reuse_name(options.reuse);
  json["transfer"] = engine::transfer_name(options.transfer);
  json["provenance"] = state.options.provenance;
  json["queue"] = queue_json(status);
  json["requests"] = requests_json(status.counters, ended_by_stop_string);
  json["pool"] = stats ? pool_json(*stats) : Json("not_available");
  json["tiers"] = stats ? tiers_json(*stats) : Json("not_available");
  json["latency"] = state.latencies.json();
  json["workers"] = workers_json(status.workers);
  json["counters"] = counters_json(status.counters, stats);
  json["handovers"] = handovers_json(status.handovers);
  return json;
}

}  // namespace nmc::http
