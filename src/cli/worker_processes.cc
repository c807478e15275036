#include "cli/worker_processes.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "base/log.h"
#include "cli/listen_address.h"
#include "cli/serving.h"
#include "cli/serving_settings.h"
#include "cli/token_settings.h"
#include "net/channel.h"
#include "router/policies.h"
#include "store/node_server.h"
#include "store/node_store.h"
#include "store/protocol.h"
#include "store/shared_files.h"

namespace nmc::cli {
namespace {

constexpr std::string_view kWorkerFlags[] = {"model",       "lora-modules",     "dtype",      "threads",
                                             "reuse",       "transfer",         "store",      "block-tokens",
                                             "max-running", "dram-bytes",       "disk-dir",   "max-batch-tokens",
                                             "tls-ca",      "handover-lease-s", "disk-bytes", "tail-bytes",
                                             "token-file",  "max-context",      "log-level"};
constexpr Nanos kMasterStart = std::chrono::seconds(30);
constexpr Nanos kWorkersStart = std::chrono::minutes(10);  // a large model is read from a slow disk
constexpr Nanos kWatchInterval = std::chrono::seconds(1);
constexpr auto kRetryInterval = std::chrono::milliseconds(10);

// The process that listens at the socket, also if it stands still.
pid_t listener_of(const std::string& path) {
  const UniqueFd fd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  sockaddr_un address{.sun_family = AF_UNIX};
  std::memcpy(address.sun_path, path.c_str(), std::min(path.size() + 1, sizeof address.sun_path - 1));
  if (!fd || ::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) return -1;
  ucred peer{};
  socklen_t size = sizeof peer;
  return ::getsockopt(fd.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 ? peer.pid : -1;
}

Result<UniqueFd> lock_in(const Path& folder) {
  NMC_RETURN_IF_ERROR(store::SharedFiles::in_folder(folder));
  const Path path = folder / store::NodeServer::kLockName;
  UniqueFd lock(::open(path.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!lock || ::flock(lock.get(), LOCK_EX | LOCK_NB) != 0) return Failure(os_error("lock", path.string()));
  return lock;
}

}  // namespace

std::span<const std::string_view> worker_serving_flags() { return kWorkerFlags; }

// ---- SocketWatch ----

SocketWatch::SocketWatch(std::string unix_path, Nanos deadline)
    : path_(std::move(unix_path)), deadline_(deadline), thread_([this] { run(); }) {}

SocketWatch::~SocketWatch() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
    wake_.notify_all();
  }
  thread_.join();
}

void SocketWatch::run() {
  for (;;) {
    const auto channel =
        net::Channel::connect({.carrier = net::Carrier::kUnix, .path = path_}, {.connect_deadline = deadline_});
    if (!channel && channel.error().code == ErrorCode::kDeadlineExceeded) {
      if (const pid_t process = listener_of(path_); process > 0) {
        log_warning("process {} at {} doesn't answer and is killed", process, path_);
        ::kill(process, SIGKILL);
      }
    }
    MutexLock lock(mutex_);
    const auto until = std::chrono::steady_clock::now() + kWatchInterval;
    while (!stopping_ && wake_.wait_until(mutex_, until)) {
    }
    if (stopping_) return;
  }
}

// ---- WorkerProcesses ----

namespace {

std::vector<RemoteWorker> remote_workers_of(const Settings& settings) {
  if (!settings.has("remote-workers")) return {};
  return *parse_remote_workers(settings.text("remote-workers"));
}

// Before anything is started.
Result<void> check_workers(const Settings& settings) {
  const std::vector<RemoteWorker> remote = remote_workers_of(settings);
  if (!remote.empty() && settings.text("transfer") != "tcp")
    return invalid_argument("{}: workers of other hosts take --transfer tcp, got {}", settings.where("remote-workers"),
                            settings.text("transfer"));
  for (const std::string role : {"prefill", "decode"}) {
    const bool elsewhere = std::ranges::any_of(remote, [&](const RemoteWorker& worker) { return worker.role == role; });
    if (settings.integer(role) == 0 && !elsewhere)
      return invalid_argument("{}: 0, expected at least one worker to {}, here or in --remote-workers",
                              settings.where(role), role);
  }
  return {};
}

}  // namespace

Result<WorkerProcesses> WorkerProcesses::begin(const Settings& settings) {
  const std::string& store = settings.text("store");
  if (store != "embedded" && !store.starts_with("unix:"))
    return unsupported(
        "{}: {}: with --mode pd-process blocks lie in the store of this host, its own (embedded) or "
        "unix:PATH",
        settings.where("store"), store);
  NMC_RETURN_IF_ERROR(check_workers(settings));
  const bool own = store == "embedded";
  if (own && settings.bytes("dram-bytes") == 0)
    return invalid_argument("{}: 0, expected memory for KV blocks", settings.where("dram-bytes"));
  NMC_ASSIGN_OR_RETURN(StoreFolder folder, StoreFolder::choose(std::nullopt, 0));
  UniqueFd lock;
  if (own) {
    NMC_RETURN_IF_ERROR(store::SharedFiles::in_folder(folder.path()));
  } else {
    NMC_ASSIGN_OR_RETURN(lock, lock_in(folder.path()));
  }
  NMC_ASSIGN_OR_RETURN(std::unique_ptr<Keeper> keeper, Keeper::start(folder.path()));
  return WorkerProcesses(std::move(folder), std::move(lock), std::move(keeper));
}

model::PackOptions WorkerProcesses::pack_options() const {
  return {.share = model::PackOptions::Share::kMake, .shared_file = folder_.path() / "weights"};
}

Result<std::unique_ptr<store::Store>> WorkerProcesses::join_store(const Settings& settings, std::size_t block_bytes) {
  NMC_ASSIGN_OR_RETURN(store::StoreOptions options, store_options_of(settings, block_bytes));
  if (options.server.empty()) {
    const std::string socket = (folder_.path() / store::NodeServer::kSocketName).string();
    std::vector<std::string> arguments = {"master",   "--store-dir=" + folder_.path().string(),
                                          "--port=0", "--metrics-port=0",
                                          "--quiet",  "--log-level=" + settings.text("log-level")};
    if (settings.has("disk-dir")) {
      arguments.push_back("--disk-dir=" + settings.text("disk-dir"));
      arguments.push_back("--disk-bytes=" + std::to_string(settings.bytes("disk-bytes")));
    }
    keeper_->keep("master", arguments);
    options.server = "unix:" + socket;
    options.disk_dir.clear();
    master_ = std::make_unique<SocketWatch>(socket, nanos_of(settings, "worker-timeout-s"));
  }
  store_ = options.server;
  const Stopwatch watch;
  for (;;) {
    auto joined = store::NodeStore::join(options);
    if (joined) return std::unique_ptr<store::Store>(*std::move(joined));
    const bool starting = master_ != nullptr && joined.error().code == ErrorCode::kUnavailable;
    if (!starting || watch.elapsed() > kMasterStart)
      return Failure(std::move(joined).error().with_context("the workers' store"));
    std::this_thread::sleep_for(kRetryInterval);  // until its socket is there
  }
}

std::vector<std::string> WorkerProcesses::worker_arguments(const Settings& settings, const std::string& name,
                                                           const std::string& role) const {
  std::vector<std::string> arguments = {"worker", "--name=" + name, "--role=" + role,
                                        "--listen=unix:" + worker_socket(name),
                                        "--shared-weights=" + (folder_.path() / "weights").string()};
  if (settings.text("transfer") == "tcp") arguments.push_back("--kv-host=" + settings.text("worker-host"));
  // Arithmetic of several workers at once shares the CPUs.
  const int threads = std::max(1, threads_of(settings) / std::max(1, workers_));
  for (const EffectiveValue& value : settings.all()) {
    const std::string& flag = value.setting.name;
    if (std::ranges::find(kWorkerFlags, flag) == std::end(kWorkerFlags)) continue;
    std::string text = text_from_value(value.value);
    if (flag == "store") text = store_;
    if (flag == "dram-bytes") text = "0";  // the server's own
    if (flag == "threads") text = std::to_string(threads);
    if (flag == "disk-dir" || flag == "disk-bytes" || flag == "tail-bytes") continue;  // the master's
    if (!text.empty()) arguments.push_back(fmt::format("--{}={}", flag, text));
  }
  return arguments;
}

Result<std::unique_ptr<engine::Runtime>> WorkerProcesses::start_workers(const Settings& settings,
                                                                        engine::RuntimeOptions options,
                                                                        const model::ModelConfig& config,
                                                                        const kv::Namespace& ns, store::Store& store) {
  engine::ProcessRuntimeOptions process;
  const std::vector<RemoteWorker> remote = remote_workers_of(settings);
  NMC_ASSIGN_OR_RETURN(process.token, token_of(settings));
  workers_ = static_cast<int>(settings.integer("prefill") + settings.integer("decode"));
  for (const std::string role : {"prefill", "decode"}) {
    std::int64_t number = 0;
    for (; number < settings.integer(role); ++number) {
      const std::string name = fmt::format("{}-{}", role, number);
      process.workers.push_back(
          {.name = name, .role = role, .address = {.carrier = net::Carrier::kUnix, .path = worker_socket(name)}});
      keeper_->keep(name, worker_arguments(settings, name, role));
    }
    for (const RemoteWorker& worker : remote) {
      if (worker.role != role) continue;
      process.workers.push_back(
          {.name = fmt::format("{}-{}", role, number++), .role = role, .address = worker.address, .local = false});
    }
  }
  process.runtime = std::move(options);
  const std::string& recovery = settings.text("recovery");
  for (const auto value : {engine::Recovery::kFail, engine::Recovery::kRetryOnce, engine::Recovery::kRetryOther}) {
    if (recovery == engine::recovery_name(value)) process.recovery = value;
  }
  NMC_ASSIGN_OR_RETURN(process.prefill_policy, router::create_policy(settings.text("router")));
  NMC_ASSIGN_OR_RETURN(process.decode_policy, router::create_policy(settings.text("router")));
  process.worker_deadline = nanos_of(settings, "worker-timeout-s");
  process.handover_lease = nanos_of(settings, "handover-lease-s");
  auto runtime = engine::ProcessRuntime::create(std::move(process), config, ns, store);
  NMC_RETURN_IF_ERROR(runtime->wait_ready(kWorkersStart));
  return std::unique_ptr<engine::Runtime>(std::move(runtime));
}

}  // namespace nmc::cli
