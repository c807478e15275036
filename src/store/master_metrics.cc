#include "store/master_metrics.h"

#include <fmt/core.h>
#include <prometheus/text_serializer.h>

#include <limits>
#include <utility>
#include <vector>

#include "base/json.h"

namespace nmc::store {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;

struct Named {
  Operation operation;
  const char* name;  // in names of metrics
  const char* word;  // in the summary
  bool has_batch;
};
constexpr Named kNamed[] = {
    {Operation::kPutStart, "put_start", "PutStart", true},
    {Operation::kPutEnd, "put_end", "PutEnd", true},
    {Operation::kPutRevoke, "put_revoke", "PutRevoke", true},
    {Operation::kGetReplicaList, "get_replica_list", "Get", true},
    {Operation::kExistKey, "exist_key", "Exist", true},
    {Operation::kRemove, "remove", "Del", false},
    {Operation::kRemoveByRegex, "remove_by_regex", "DelByRegex", false},
    {Operation::kRemoveAll, "remove_all", "DelAll", false},
    {Operation::kMountSegment, "mount_segment", "Mount", false},
    {Operation::kUnmountSegment, "unmount_segment", "Unmount", false},
    {Operation::kPing, "ping", "Ping", false},
};
static_assert(std::size(kNamed) == kOperations);

// What is true at one moment, more or less.
struct Snapshot {
  explicit Snapshot(NodeServer& server) : clients(server.clients()) {
    server.fill_counters(stats);
    for (MasterCore::SegmentInfo& segment : server.core().segments()) {
      if (segment.state != SegmentState::kMounted) continue;  // names are unique among those
      capacity += segment.bytes;
      used += segment.used_bytes;
      segments.push_back(std::move(segment));
    }
  }
  StoreStats stats;
  std::vector<MasterCore::SegmentInfo> segments;
  std::uint64_t capacity = 0, used = 0;
  std::size_t clients;
};

// Labels are UTF-8 there, names of segments any bytes here.
std::string label_text(const std::string& name) {
  if (is_valid_utf8(name)) return name;
  std::string text = name;
  for (char& c : text) c = static_cast<unsigned char>(c) < 0x80 ? c : '?';
  return text;
}

class Exposition {
 public:
  void counter(std::string name, std::string help, std::uint64_t value) {
    ClientMetric metric;
    metric.counter.value = static_cast<double>(value);
    add(std::move(name), std::move(help), MetricType::Counter, {std::move(metric)});
  }
  void gauge(std::string name, std::string help, std::uint64_t value) {
    ClientMetric metric;
    metric.gauge.value = static_cast<double>(value);
    add(std::move(name), std::move(help), MetricType::Gauge, {std::move(metric)});
  }
  void by_segment(std::string name, std::string help, const std::vector<MasterCore::SegmentInfo>& segments,
                  std::uint64_t MasterCore::SegmentInfo::*value) {
    std::vector<ClientMetric> metrics;
    for (const MasterCore::SegmentInfo& segment : segments) {
      ClientMetric& metric = metrics.emplace_back();
      metric.label = {{"segment", label_text(segment.name)}};
      metric.gauge.value = static_cast<double>(segment.*value);
    }
    add(std::move(name), std::move(help), MetricType::Gauge, std::move(metrics));
  }
  void histogram(std::string name, std::string help, const OperationCounters::Values& values) {
    ClientMetric metric;
    std::uint64_t below = 0;
    for (std::size_t i = 0; i < values.at_most.size(); ++i) {
      below += values.at_most[i];
      const double bound = i < OperationCounters::kValueBounds.size()
                               ? static_cast<double>(OperationCounters::kValueBounds[i])
                               : std::numeric_limits<double>::infinity();
      metric.histogram.bucket.push_back({.cumulative_count = below, .upper_bound = bound});
    }
    metric.histogram.sample_count = below;
    metric.histogram.sample_sum = static_cast<double>(values.bytes);
    add(std::move(name), std::move(help), MetricType::Histogram, {std::move(metric)});
  }
  std::string text() const { return prometheus::TextSerializer().Serialize(families_); }

 private:
  void add(std::string name, std::string help, MetricType type, std::vector<ClientMetric> metrics) {
    families_.push_back({.name = std::move(name), .help = std::move(help), .type = type, .metric = std::move(metrics)});
  }
  std::vector<MetricFamily> families_;
};

void add_operations(Exposition& out, const OperationCounters& operations) {
  for (const Named& named : kNamed) {
    const OperationCounters::Single single = operations.single(named.operation);
    out.counter(fmt::format("master_{}_requests_total", named.name), "Requests for one object.", single.requests);
    out.counter(fmt::format("master_{}_failures_total", named.name), "Those that failed.", single.failures);
    if (!named.has_batch) continue;
    const OperationCounters::Batch batch = operations.batch(named.operation);
    const std::string prefix = fmt::format("master_batch_{}_", named.name);
    out.counter(prefix + "requests_total", "Requests for several objects.", batch.requests);
    out.counter(prefix + "failures_total", "Those of which all objects failed.", batch.failures);
    out.counter(prefix + "partial_successes_total", "Those of which some objects failed.", batch.partial_successes);
    out.counter(prefix + "items_total", "Objects in such requests.", batch.items);
    out.counter(prefix + "failed_items_total", "Those that failed.", batch.failed_items);
  }
}

void add_evictions(Exposition& out, const StoreStats& stats) {
  const std::uint64_t successes = stats.evict_attempts - stats.evict_failures;
  for (const char* kind : {"total", "mem"}) {  // there is no other kind
    out.counter(fmt::format("master_attempted_evictions_{}", kind), "Searches for objects that may go.",
                stats.evict_attempts);
    out.counter(fmt::format("master_successful_evictions_{}", kind), "Those that found some.", successes);
  }
  for (const char* kind : {"", "_mem"}) {
    out.counter(fmt::format("master_evicted_key_count{}", kind), "Objects evicted.", stats.evicted_objects);
    out.counter(fmt::format("master_evicted_size_bytes{}", kind), "Their bytes.", stats.evicted_bytes);
  }
  out.counter("nano_mooncake_evict_skipped_pinned_total", "Objects passed over because somebody was reading them.",
              stats.evict_skipped_pinned);
}

void add_contents(Exposition& out, const Snapshot& now) {
  out.gauge("master_allocated_bytes", "Bytes in use in all mounted segments.", now.used);
  out.gauge("master_total_capacity_bytes", "Bytes of all mounted segments.", now.capacity);
  out.by_segment("segment_allocated_bytes", "Bytes in use.", now.segments, &MasterCore::SegmentInfo::used_bytes);
  out.by_segment("segment_total_capacity_bytes", "Bytes of the segment.", now.segments,
                 &MasterCore::SegmentInfo::bytes);
  out.gauge("master_key_count", "Objects that can be found.", now.stats.objects);
  out.gauge("master_soft_pin_key_count", "Those that are soft-pinned.", now.stats.soft_pinned);
  out.gauge("master_active_clients", "Clients of this host that have joined.", now.clients);
  out.gauge("mem_cache_nums_", "Objects in memory.", now.stats.objects);
  out.counter("mem_cache_hit_nums_", "Lookups that found their object in memory, by all clients.", now.stats.hits);
  out.counter("nano_mooncake_lookups_total", "Lookups by all clients.", now.stats.lookups);
  out.gauge("nano_mooncake_reservations", "Puts that have space and aren't finished.", now.stats.reservations);
  out.gauge("nano_mooncake_limbo_bytes", "Bytes of objects that are gone but for their last readers.",
            now.stats.limbo_bytes);
  out.gauge("nano_mooncake_index_entries", "Entries that the index has memory for.", now.stats.index_entries);
  out.gauge("nano_mooncake_index_entries_used", "Those in use.", now.stats.index_entries_used);
}

void add_disk(Exposition& out, const StoreStats& stats) {
  if (!stats.disk) return;
  out.gauge("nano_mooncake_disk_objects", "Objects on disk.", stats.disk_objects);
  out.gauge("nano_mooncake_disk_bytes", "Bytes of its files.", stats.disk_used_bytes);
  out.gauge("nano_mooncake_disk_capacity_bytes", "The most that they may be.", stats.disk_cap_bytes);
  out.counter("nano_mooncake_disk_hits_total", "Objects that were read back into memory.", stats.disk_hits);
  out.counter("nano_mooncake_disk_written_bytes_total", "Bytes of objects written.", stats.disk_written_bytes);
  out.counter("nano_mooncake_disk_write_dropped_total",
              "Objects that weren't written because more came than the disk takes.", stats.disk_write_dropped);
  out.counter("nano_mooncake_disk_errors_total", "Reads and writes that failed.", stats.disk_errors);
  out.gauge("nano_mooncake_disk_quarantined_entries", "Damaged objects that were put aside.",
            stats.quarantined_entries);
}

double percent(std::uint64_t part, std::uint64_t whole) {
  return whole == 0 ? 0 : 100.0 * static_cast<double>(part) / static_cast<double>(whole);
}

}  // namespace

std::string size_text(std::uint64_t bytes) {
  static constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  double amount = static_cast<double>(bytes);
  std::size_t unit = 0;
  for (; amount >= 1024 && unit + 1 < std::size(kUnits); ++unit) amount /= 1024;
  return fmt::format("{:.2f} {}", amount, kUnits[unit]);
}

std::string metrics_text(NodeServer& server) {
  const Snapshot now(server);
  Exposition out;
  add_contents(out, now);
  out.histogram("master_value_size_bytes", "Sizes of objects that were given space.", server.operations().values());
  out.counter("master_put_start_alloc_failures_total", "Objects that were given none for want of room.",
              server.operations().no_room());
  add_operations(out, server.operations());
  add_evictions(out, now.stats);
  add_disk(out, now.stats);
  return out.text();
}

std::string metrics_summary(NodeServer& server) {
  const Snapshot now(server);
  std::string single, batch;
  for (const Named& named : kNamed) {
    const OperationCounters::Single one = server.operations().single(named.operation);
    single +=
        fmt::format("{}{}={}/{}", single.empty() ? "" : ", ", named.word, one.requests - one.failures, one.requests);
    if (!named.has_batch) continue;
    const OperationCounters::Batch many = server.operations().batch(named.operation);
    batch += fmt::format("{}{}:(Req={}/{}/{}, Item={}/{})", batch.empty() ? "" : ", ", named.word,
                         many.requests - many.failures - many.partial_successes, many.partial_successes, many.requests,
                         many.items - many.failed_items, many.items);
  }
  return fmt::format(
      "Mem Storage: {} / {} ({:.1f}%) | Keys: {} (soft-pinned: {}) | Clients: {} | Requests (Success/Total): {} | "
      "Batch Requests (Req=Success/PartialSuccess/Total, Item=Success/Total): {} | Eviction: Success/Attempts={}/{}, "
      "keys={}, size={}",
      size_text(now.used), size_text(now.capacity), percent(now.used, now.capacity), now.stats.objects,
      now.stats.soft_pinned, now.clients, single, batch, now.stats.evict_attempts - now.stats.evict_failures,
      now.stats.evict_attempts, now.stats.evicted_objects, size_text(now.stats.evicted_bytes));
}

}  // namespace nmc::store
