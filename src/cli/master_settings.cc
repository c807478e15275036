#include "cli/master_settings.h"

#include <iterator>
#include <limits>
#include <string_view>

#include "cli/serving_settings.h"

namespace nmc::cli {
namespace {

constexpr std::int64_t kDayMs = 86'400'000;
constexpr std::string_view kServingFlags[] = {"log-level", "token-file", "disk-dir", "disk-bytes"};

// Addresses and ports are by flag only: one that stands in a shared file or environment for another command must not
// open this one.
std::vector<Setting> address_settings() {
  return {
      {.name = "rpc-address",
       .kind = Kind::kText,
       .placeholder = "ADDRESS",
       .default_text = "127.0.0.1",
       .help = "Address that clients connect to. Only this host reaches the default; Mooncake's own master listens on "
               "0.0.0.0, which has to be asked for here and wants a token (NANO_MOONCAKE_TOKEN) or --insecure.",
       .source = Source::kFlagOnly},
      {.name = "rpc-port",
       .kind = Kind::kInteger,
       .placeholder = "N",
       .default_text = "",
       .help = "TCP port that clients connect to; 0 picks a free one, which the line `ready HOST:PORT` names. Default: "
               "what --port says.",
       .low = 0,
       .high = 65'535,
       .source = Source::kFlagOnly},
      {.name = "port",
       .kind = Kind::kInteger,
       .placeholder = "N",
       .default_text = "50051",
       .help = "An older name of --rpc-port, which wins over it.",
       .low = 0,
       .high = 65'535,
       .source = Source::kFlagOnly},
      {.name = "metrics-host",
       .kind = Kind::kText,
       .placeholder = "ADDRESS",
       .default_text = "127.0.0.1",
       .help =
           "Address of metrics and administration over HTTP; what --rpc-address says of other hosts holds here too.",
       .source = Source::kFlagOnly},
      {.name = "metrics-port",
       .kind = Kind::kInteger,
       .placeholder = "N",
       .default_text = "9003",
       .help = "Its TCP port; 0 picks a free one.",
       .low = 0,
       .high = 65'535,
       .source = Source::kFlagOnly},
      {.name = "enable-http-metadata-server",
       .kind = Kind::kSwitch,
       .default_text = "false",
       .help = "Serve the transfer engine's metadata too, as mooncake_http_metadata_server does.",
       .source = Source::kFlagOnly},
      {.name = "http-metadata-server-host",
       .kind = Kind::kText,
       .placeholder = "ADDRESS",
       .default_text = "127.0.0.1",
       .help = "Its address (Mooncake's own: 0.0.0.0). Nothing asks its clients for a token.",
       .source = Source::kFlagOnly},
      {.name = "http-metadata-server-port",
       .kind = Kind::kInteger,
       .placeholder = "N",
       .default_text = "8080",
       .help = "Its TCP port; 0 picks a free one.",
       .low = 0,
       .high = 65'535,
       .source = Source::kFlagOnly},
      {.name = "insecure",
       .kind = Kind::kSwitch,
       .default_text = "false",
       .help = "Listen beyond this host without a token: whoever reaches the master can then read, change and remove "
               "what it holds.",
       .source = Source::kFlagOnly},
      {.name = "tls-cert",
       .kind = Kind::kText,
       .placeholder = "FILE",
       .default_text = "",
       .help = "Certificate (PEM, with those behind it that lead to its authority): clients over TCP then come inside "
               "TLS 1.3 only, with NANO_MOONCAKE_TLS_CA set to the file of that authority. It must name the host or "
               "address that they use. Takes --tls-key, too. Default: no TLS.",
       .source = Source::kFlagOnly},
      {.name = "tls-key",
       .kind = Kind::kText,
       .placeholder = "FILE",
       .default_text = "",
       .help = "Its key (PEM, without a pass phrase).",
       .source = Source::kFlagOnly},
  };
}

std::vector<Setting> store_settings() {
  return {
      {.name = "store-dir",
       .kind = Kind::kText,
       .placeholder = "DIR",
       .default_text = "",
       .help = "Folder of the shared files and the socket; belongs in memory (tmpfs). The next master of the same "
               "folder goes on with what is in it. Default: /dev/shm/nano-mooncake-UID/PORT, or below the system's "
               "temporary folder where /dev/shm can't be written; a port that was picked as a free one gets a folder "
               "that ends with the process.",
       .source = Source::kFlagOnly},
      {.name = "default-kv-lease-ttl",
       .kind = Kind::kDuration,
       .placeholder = "TIME",
       .default_text = "10000",
       .help = "How long after a read an object can't be removed without force: milliseconds, or with ms, s, m or h.",
       .low = 0,
       .high = 365 * kDayMs,
       .source = Source::kFlagOnly},
      {.name = "default-kv-soft-pin-ttl",
       .kind = Kind::kDuration,
       .placeholder = "TIME",
       .default_text = "1800000",
       .help = "How long after its put a soft-pinned object is evicted after all others, unless the put says: "
               "milliseconds, or with ms, s, m or h.",
       .low = 0,
       .high = 365 * kDayMs,
       .source = Source::kFlagOnly},
      {.name = "max-kv-soft-pin-ttl",
       .kind = Kind::kDuration,
       .placeholder = "TIME",
       .default_text = "86400000",
       .help = "The longest time that a put may ask for; at least --default-kv-soft-pin-ttl.",
       .low = 0,
       .high = 365 * kDayMs,
       .source = Source::kFlagOnly},
      {.name = "allow-evict-soft-pinned-objects",
       .kind = Kind::kSwitch,
       .default_text = "true",
       .help = "Evict soft-pinned objects within that time where nothing else can go.",
       .source = Source::kFlagOnly},
      {.name = "put-start-discard-timeout-sec",
       .kind = Kind::kInteger,
       .placeholder = "N",
       .default_text = "30",
       .help = "Seconds after which a put that isn't finished no longer can be; 0: it always can.",
       .low = 0,
       .high = 365 * kDayMs / 1000,
       .source = Source::kFlagOnly},
  };
}

// ---- what Mooncake's master has besides ----

enum class Type { kBool, kInt32, kInt64, kUint32, kUint64, kDouble, kString };

struct Idle {
  const char* name;
  Type type;
  const char* default_text;
  const char* reason;
};

constexpr const char* kNoDisk = "objects are kept in memory only";
constexpr const char* kNoCxl = "there is no CXL memory here";
constexpr const char* kNoHa = "there is one master, whose store outlives it in shared memory";
constexpr const char* kNoSnapshot = "the store outlives its master in shared memory";
constexpr const char* kNoEvents = "no events are published";
constexpr const char* kNoTenants = "there are no tenants";
constexpr const char* kNoTasks = "there are no background tasks";
constexpr const char* kNoReplication = "copies are made by who puts, not later";
constexpr const char* kThreads = "the master chooses its threads itself";
constexpr const char* kEvicts = "a put evicts what it needs, when it needs it";
constexpr const char* kGlog = "--log-level says what is logged, to standard error";

constexpr Idle kIdle[] = {
    {"allocation-strategy", Type::kString, "random",
     "the preferred segment is tried first, then the one with most room"},
    {"batch-oplog-retry-timeout-sec", Type::kUint32, "180", kNoHa},
    {"client-ttl", Type::kInt64, "10", "a client's death shows at once, by a lock it holds"},
    {"cluster-id", Type::kString, "mooncake_cluster", kNoHa},
    {"config-path", Type::kString, "", "settings of a file are given by --config"},
    {"cxl-path", Type::kString, "/dev/dax0.0", kNoCxl},
    {"cxl-size", Type::kUint64, "8589934592", kNoCxl},
    {"dynamic-replication-admission-qps-threshold", Type::kDouble, "0.8", kNoReplication},
    {"dynamic-replication-heat-window-seconds", Type::kUint32, "10", kNoReplication},
    {"dynamic-replication-max-memory-replicas", Type::kUint64, "2", kNoReplication},
    {"dynamic-replication-mode", Type::kString, "off", kNoReplication},
    {"enable-cxl", Type::kBool, "false", kNoCxl},
    {"enable-disk-eviction", Type::kBool, "true", kNoDisk},
    {"enable-ha", Type::kBool, "false", kNoHa},
    {"enable-kv-events", Type::kBool, "false", kNoEvents},
    {"enable-metadata-cleanup-on-timeout", Type::kBool, "false", "clients of this store publish no metadata"},
    {"enable-metric-reporting", Type::kBool, "true", "metrics are served, not logged"},
    {"enable-multi-tenants", Type::kBool, "false", kNoTenants},
    {"enable-offload", Type::kBool, "false", kNoDisk},
    {"enable-oplog", Type::kBool, "false", kNoHa},
    {"enable-snapshot", Type::kBool, "false", kNoSnapshot},
    {"enable-snapshot-restore", Type::kBool, "false", kNoSnapshot},
    {"etcd-endpoints", Type::kString, "", kNoHa},
    {"eviction-high-watermark-ratio", Type::kDouble, "0.9", kEvicts},
    {"eviction-ratio", Type::kDouble, "0.05", kEvicts},
    {"global-file-segment-size", Type::kInt64, "9223372036854775807", kNoDisk},
    {"ha-backend-connstring", Type::kString, "", kNoHa},
    {"ha-backend-type", Type::kString, "etcd", kNoHa},
    {"kv-events-additional-salt", Type::kString, "", kNoEvents},
    {"kv-events-backend-id", Type::kString, "", kNoEvents},
    {"kv-events-bind-endpoint", Type::kString, "", kNoEvents},
    {"kv-events-block-size", Type::kUint32, "0", kNoEvents},
    {"kv-events-dp-rank", Type::kUint32, "0", kNoEvents},
    {"kv-events-emit-legacy-compat", Type::kBool, "true", kNoEvents},
    {"kv-events-emit-object-key", Type::kBool, "true", kNoEvents},
    {"kv-events-lora-name", Type::kString, "", kNoEvents},
    {"kv-events-model-name", Type::kString, "", kNoEvents},
    {"kv-events-queue-capacity", Type::kUint32, "65536", kNoEvents},
    {"kv-events-tenant-id", Type::kString, "default", kNoEvents},
    {"max-retry-attempts", Type::kUint32, "10", kNoTasks},
    {"max-threads", Type::kInt32, "16", kThreads},
    {"max-total-finished-tasks", Type::kUint32, "10000", kNoTasks},
    {"max-total-pending-tasks", Type::kUint32, "10000", kNoTasks},
    {"max-total-processing-tasks", Type::kUint32, "10000", kNoTasks},
    {"memory-allocator", Type::kString, "offset", "there is one allocator"},
    {"mmap-arena-pool-size", Type::kUint64, "8589934592", "there is one allocator"},
    {"nof-eviction-high-watermark-ratio", Type::kDouble, "0.9", kNoDisk},
    {"nof-eviction-ratio", Type::kDouble, "0.05", kNoDisk},
    {"nof-heartbeat-failures-threshold", Type::kUint32, "3", kNoDisk},
    {"nof-heartbeat-interval-sec", Type::kInt64, "10", kNoDisk},
    {"nof-heartbeat-probe-timeout-ms", Type::kUint32, "1000", kNoDisk},
    {"offload-cap-ratio", Type::kDouble, "0.5", kNoDisk},
    {"offload-force-evict", Type::kBool, "false", kNoDisk},
    {"offload-on-evict", Type::kBool, "false", kNoDisk},
    {"offloading-queue-limit", Type::kUint64, "50000", kNoDisk},
    {"oplog-batch-max-entries", Type::kUint32, "1024", kNoHa},
    {"oplog-poll-interval-ms", Type::kInt32, "1000", kNoHa},
    {"pending-task-timeout-sec", Type::kUint64, "300", kNoTasks},
    {"pod-name", Type::kString, "", kNoHa},
    {"pod-namespace", Type::kString, "", kNoHa},
    {"processing-task-timeout-sec", Type::kUint64, "300", kNoTasks},
    {"promotion-admission-threshold", Type::kUint32, "2", kNoDisk},
    {"promotion-max-per-heartbeat", Type::kUint32, "1", kNoDisk},
    {"promotion-on-hit", Type::kBool, "false", kNoDisk},
    {"promotion-queue-limit", Type::kUint32, "50000", kNoDisk},
    {"put-start-release-timeout-sec", Type::kUint64, "600",
     "space of an unfinished put comes back with the client's word or its death"},
    {"quota-bytes", Type::kUint64, "0", kNoDisk},
    {"root-fs-dir", Type::kString, "", kNoDisk},
    {"rpc-conn-timeout-seconds", Type::kInt32, "0", "an idle connection stays, one that stalls within a message goes"},
    {"rpc-enable-tcp-no-delay", Type::kBool, "true", "it is always on"},
    {"rpc-interface", Type::kString, "", "--rpc-address says where to listen"},
    {"rpc-thread-num", Type::kInt32, "0", kThreads},
    {"snapshot-backup-dir", Type::kString, "", kNoSnapshot},
    {"snapshot-catalog-backend-connstring", Type::kString, "", kNoSnapshot},
    {"snapshot-catalog-backend-type", Type::kString, "", kNoSnapshot},
    {"snapshot-catalog-store-connstring", Type::kString, "", kNoSnapshot},
    {"snapshot-catalog-store-type", Type::kString, "", kNoSnapshot},
    {"snapshot-child-timeout-seconds", Type::kUint64, "300", kNoSnapshot},
    {"snapshot-interval-seconds", Type::kUint64, "600", kNoSnapshot},
    {"snapshot-object-store-type", Type::kString, "", kNoSnapshot},
    {"snapshot-payload-backend-type", Type::kString, "", kNoSnapshot},
    {"snapshot-payload-store-type", Type::kString, "", kNoSnapshot},
    {"snapshot-retention-count", Type::kUint32, "2", kNoSnapshot},
    {"tenant-quota-connector-type", Type::kString, "file", kNoTenants},
    {"tenant-quota-connector-uri", Type::kString, "", kNoTenants},
    {"use-mmap-arena-allocator", Type::kBool, "false", "there is one allocator"},
    // of glog
    {"alsologtostderr", Type::kBool, "false", kGlog},
    {"colorlogtostderr", Type::kBool, "false", kGlog},
    {"log-dir", Type::kString, "", kGlog},
    {"logbufsecs", Type::kInt32, "30", kGlog},
    {"logtostderr", Type::kBool, "false", kGlog},
    {"max-log-size", Type::kInt32, "1800", kGlog},
    {"minloglevel", Type::kInt32, "0", kGlog},
    {"stderrthreshold", Type::kInt32, "2", kGlog},
    {"v", Type::kInt32, "0", kGlog},
    {"vmodule", Type::kString, "", kGlog},
};

template <typename Int>
void bound(Setting& setting) {
  setting.kind = Kind::kInteger;
  setting.low = std::numeric_limits<Int>::min();
  setting.high = std::numeric_limits<Int>::max();
}

Setting idle_setting(const Idle& idle) {
  Setting setting{.name = idle.name,
                  .default_text = idle.default_text,
                  .help = idle.reason,
                  .source = Source::kFlagOnly,
                  .without_effect = true};
  switch (idle.type) {
    case Type::kBool: setting.kind = Kind::kSwitch; break;
    case Type::kInt32: bound<std::int32_t>(setting); break;
    case Type::kInt64: bound<std::int64_t>(setting); break;
    case Type::kUint32: bound<std::uint32_t>(setting); break;
    case Type::kUint64:
      bound<std::int64_t>(setting);
      setting.low = 0;
      break;
    case Type::kDouble:
      setting.kind = Kind::kNumber;
      setting.low = std::numeric_limits<std::int64_t>::min();
      break;
    case Type::kString: setting.kind = Kind::kText; break;
  }
  return setting;
}

}  // namespace

std::vector<Setting> master_settings() {
  std::vector<Setting> settings = address_settings();
  for (Setting& setting : store_settings()) settings.push_back(std::move(setting));
  settings.push_back(quiet_setting());
  for (Setting& setting : serving_settings_for(kServingFlags)) settings.push_back(std::move(setting));
  for (const Idle& idle : kIdle) settings.push_back(idle_setting(idle));
  return settings;
}

}  // namespace nmc::cli
