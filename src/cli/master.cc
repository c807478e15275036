// `mooncake_master`: the store of a node, for every process on the host and for clients over TCP.
#include <fmt/core.h>

#include <chrono>
#include <cstdio>

#include "base/log.h"
#include "cli/command.h"
#include "cli/exit_code.h"
#include "cli/listen_address.h"
#include "cli/master_settings.h"
#include "cli/signals.h"
#include "cli/store_folder.h"
#include "cli/token_settings.h"
#include "net/address.h"
#include "store/master_admin.h"
#include "store/metadata_service.h"
#include "store/node_server.h"

namespace nmc::cli {
namespace {

constexpr Nanos kLastAnswersTimeout = std::chrono::milliseconds(300);  // to reach their clients, once a signal has come
// Memory for the first ones is taken at start (and in each client's table), the rest is address space until then.
constexpr store::IndexWriter::Entries kIndexEntries = {.initial = 1 << 14, .most = 1 << 24};

std::uint16_t port_of(const Settings& settings, std::string_view name) {
  return static_cast<std::uint16_t>(settings.integer(name));
}

store::NodeServerOptions node_options(const Settings& settings, const Path& folder, std::string token) {
  store::NodeServerOptions options;
  options.folder = folder;
  options.tcp_host = settings.text("rpc-address");
  options.tcp_port = port_of(settings, settings.has("rpc-port") ? "rpc-port" : "port");
  options.token = std::move(token);
  options.tls_cert = settings.text_or("tls-cert", "");
  options.tls_key = settings.text_or("tls-key", "");
  options.insecure = settings.on("insecure");
  options.disk_dir = settings.text_or("disk-dir", "");
  options.disk_bytes = settings.bytes("disk-bytes");
  options.core.entries = kIndexEntries;
  options.core.lease = std::chrono::milliseconds(settings.integer("default-kv-lease-ttl"));
  options.core.soft_pin_lifetime = std::chrono::milliseconds(settings.integer("default-kv-soft-pin-ttl"));
  options.core.soft_pin_lifetime_max = std::chrono::milliseconds(settings.integer("max-kv-soft-pin-ttl"));
  options.core.evict_soft_pinned = settings.on("allow-evict-soft-pinned-objects");
  options.core.reservation_lifetime = std::chrono::seconds(settings.integer("put-start-discard-timeout-sec"));
  return options;
}

Result<void> check_soft_pins(const Settings& settings) {
  const std::int64_t unless_told = settings.integer("default-kv-soft-pin-ttl");
  const std::int64_t most = settings.integer("max-kv-soft-pin-ttl");
  if (unless_told <= most) return {};
  return invalid_argument("--default-kv-soft-pin-ttl: {} ms, expected at most the {} ms of --max-kv-soft-pin-ttl",
                          unless_told, most);
}

// Said here, where the flags have names; the servers of channels refuse it too.
Result<void> check_addresses(const Settings& settings, const std::string& token) {
  for (const char* flag : {"rpc-address", "metrics-host"}) {
    if (is_loopback(settings.text(flag)) || !token.empty() || settings.on("insecure")) continue;
    return permission_denied(
        "--{}: {} opens the master to other hosts, who have to prove a token: set NANO_MOONCAKE_TOKEN (or "
        "--token-file), or allow it without one by --insecure",
        flag, settings.text(flag));
  }
  return {};
}

Result<void> check_tls(const Settings& settings) {
  for (const auto& [one, other] : {std::pair("tls-cert", "tls-key"), std::pair("tls-key", "tls-cert")}) {
    if (settings.has(one) && !settings.has(other))
      return invalid_argument("--{}: {} takes --{}, too", one, settings.text(one), other);
  }
  return {};
}

// The HTTP servers of a master.
struct Doors {
  std::unique_ptr<net::HttpServer> admin;
  std::unique_ptr<net::HttpServer> metadata;  // may be null

  void close() {
    for (net::HttpServer* server : {admin.get(), metadata.get()}) {
      if (server == nullptr) continue;
      server->stop_accepting();
      if (!server->wait_idle(kLastAnswersTimeout)) log_warning("clients that didn't read their answers are cut off");
    }
  }
};

Result<Doors> open_doors(const Settings& settings, store::MasterAdmin& admin, store::MetadataService& metadata) {
  Doors doors;
  net::HttpServerOptions options{.host = settings.text("metrics-host"), .port = port_of(settings, "metrics-port")};
  NMC_ASSIGN_OR_RETURN(doors.admin, store::serve_master_admin(admin, options));
  if (!settings.on("enable-http-metadata-server")) return doors;
  options = {.host = settings.text("http-metadata-server-host"),
             .port = port_of(settings, "http-metadata-server-port")};
  NMC_ASSIGN_OR_RETURN(doors.metadata, store::serve_metadata(metadata, options));
  if (!is_loopback(options.host))
    log_warning("whoever reaches {} can read and change the metadata: nothing asks for a token", options.host);
  return doors;
}

void describe(const std::string& address, const Path& folder, const Doors& doors) {
  fmt::print(stderr, "nano-mooncake master: clients take {}; shared files in {}; metrics at {}/metrics{}\n", address,
             folder.string(), doors.admin->url(),
             doors.metadata == nullptr ? "" : fmt::format("; metadata at {}/metadata", doors.metadata->url()));
}

Result<int> run(const Settings& settings) {
  NMC_ASSIGN_OR_RETURN(StopSignal stop, StopSignal::create());
  NMC_ASSIGN_OR_RETURN(const std::string token, token_of(settings));
  NMC_RETURN_IF_ERROR(check_addresses(settings, token));
  NMC_RETURN_IF_ERROR(check_soft_pins(settings));
  NMC_RETURN_IF_ERROR(check_tls(settings));
  const std::uint16_t port = port_of(settings, settings.has("rpc-port") ? "rpc-port" : "port");
  std::optional<Path> given;
  if (settings.has("store-dir")) given = std::filesystem::absolute(settings.text("store-dir"));
  NMC_ASSIGN_OR_RETURN(const StoreFolder folder, StoreFolder::choose(given, port));
  net::Address address{.host = settings.text("rpc-address"), .port = port};
  auto started = store::NodeServer::start(node_options(settings, folder.path(), token));
  if (!started) return Failure(std::move(started).error().with_context("can't serve " + address.to_string()));
  const std::unique_ptr<store::NodeServer> node = *std::move(started);
  address.port = node->tcp_port();
  store::MasterAdmin admin(*node, {.address = address.to_string(), .token = token});
  store::MetadataService metadata;
  NMC_ASSIGN_OR_RETURN(Doors doors, open_doors(settings, admin, metadata));
  if (!settings.on("quiet")) describe(address.to_string(), folder.path(), doors);
  fmt::print(stderr, "ready {}\n", address.to_string());
  NMC_RETURN_IF_ERROR(stop.wait());
  doors.close();
  return kExitDone;
}

}  // namespace

Command master_command() {
  return {
      .name = "master",
      .link = "mooncake_master",
      .gflags = true,
      .summary = "the object store of a host, for every process on it",
      .purpose =
          "Holds the store's index and serves its clients: those on this host share memory with it, those on others "
          "come over TCP. Clients take HOST:PORT as their master. Memory comes from the clients' segments. When it "
          "serves, one line `ready HOST:PORT` appears on standard error. SIGTERM or SIGINT ends it with exit code 0; "
          "objects in shared memory are there for the next master of the same folder.\n\nAlso run as mooncake_master, "
          "with the flags of Mooncake's master: dashes or underscores, --flag=value or --flag value, one dash or two, "
          "--noflag for --flag=false.",
      .settings = master_settings(),
      .exit_codes = {kExitDone, kExitWrongInput, kExitNotDone, kExitInterrupted},
      .example = "mooncake_master --rpc_port=50051 --enable_http_metadata_server=true",
      .run = run,
  };
}

}  // namespace nmc::cli
