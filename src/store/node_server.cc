#include "store/node_server.h"

#include <sched.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "base/log.h"
#include "store/disk_medium.h"

namespace nmc::store {
namespace {

constexpr auto kLookAtDetached = std::chrono::milliseconds(50);
constexpr auto kLookAtAll = std::chrono::seconds(1);
constexpr int kTcpLoopsMax = 4;
// Of what waits to be written to disk. More comes than it can take: the oldest is dropped, and counted.
constexpr std::uint64_t kDiskQueueBytesMax = std::uint64_t{256} << 20;

// Nothing: the file was removed meanwhile, with its folder perhaps, by somebody who thought it was abandoned.
Result<UniqueFd> lock_file(const Path& path) {
  UniqueFd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!fd && errno == ENOENT) return fd;
  if (!fd) return Failure(os_error("open", path.string()));
  if (retry_on_eintr([&] { return ::flock(fd.get(), LOCK_EX | LOCK_NB); }) != 0) {
    if (errno == EWOULDBLOCK)
      return already_exists("store folder {}: a living master has it", path.parent_path().string());
    return Failure(os_error("lock", path.string()));
  }
  struct stat ours {
  }, there{};
  const bool same = ::fstat(fd.get(), &ours) == 0 && ::stat(path.c_str(), &there) == 0 && ours.st_dev == there.st_dev &&
                    ours.st_ino == there.st_ino;
  if (!same) fd = UniqueFd();
  return fd;
}

// Makes the folder where it is missing.
Result<UniqueFd> lock_folder(const Path& folder) {
  constexpr int kTries = 10;
  for (int i = 0; i < kTries; ++i) {
    NMC_RETURN_IF_ERROR(SharedFiles::in_folder(folder));
    NMC_ASSIGN_OR_RETURN(UniqueFd lock, lock_file(folder / NodeServer::kLockName));
    if (lock) return lock;
  }
  return unavailable("store folder {}: it is removed again and again", folder.string());
}

}  // namespace

// ---- start and stop ----

Result<std::unique_ptr<NodeServer>> NodeServer::start(NodeServerOptions options) {
  std::unique_ptr<NodeServer> server(new NodeServer(std::move(options)));
  NMC_RETURN_IF_ERROR(server->open());
  return server;
}

NodeServer::NodeServer(NodeServerOptions options) : options_(std::move(options)), clock_(*options_.clock) {}

Result<void> NodeServer::open() {
  std::error_code error;
  const bool was_there = std::filesystem::exists(options_.folder / kLockName, error);
  NMC_ASSIGN_OR_RETURN(lock_, lock_folder(options_.folder));
  made_folder_ = !was_there;
  NMC_ASSIGN_OR_RETURN(core_, open_core());
  NMC_ASSIGN_OR_RETURN(const PinTable* table, core_->add_client(Clients::Kind::kUser));
  own_client_ = table->client();
  NMC_ASSIGN_OR_RETURN(ClientFiles files, core_->files_for(*table));
  NMC_ASSIGN_OR_RETURN(reader_, SharedStoreReader::open(std::move(files), clock_));
  NMC_RETURN_IF_ERROR(open_disk());
  net::ChannelServerOptions carriers;
  carriers.unix_path = (options_.folder / kSocketName).string();
  carriers.tcp_host = options_.tcp_host;
  carriers.tcp_port = options_.tcp_port;
  // One connection keeps one core busy, so a client that has large things to move opens several.
  carriers.tcp_loops = std::clamp(static_cast<int>(std::thread::hardware_concurrency()), 1, kTcpLoopsMax);
  carriers.tls_cert = options_.tls_cert;
  carriers.tls_key = options_.tls_key;
  carriers.token = options_.token;
  carriers.insecure = options_.insecure;
  NMC_ASSIGN_OR_RETURN(server_, net::ChannelServer::start(std::move(carriers), *this));
  housekeeper_ = std::thread([this] { keep_house(); });
  return {};
}

Result<void> NodeServer::open_disk() {
  if (options_.disk_dir.empty()) {
    core_->set_observer(nullptr);
    return {};
  }
  DiskLogOptions log;
  log.folder = options_.disk_dir;
  log.bytes_max = options_.disk_bytes;
  log.clock = options_.clock;
  NMC_ASSIGN_OR_RETURN(auto disk, DiskMedium::open(std::move(log)));
  tiers_ = std::make_unique<Tiers>(*core_, *reader_, clock_);
  NMC_RETURN_IF_ERROR(tiers_->add(std::move(disk), kDiskQueueBytesMax));
  disk_thread_ = std::make_unique<boost::asio::thread_pool>(1);
  core_->set_observer(tiers_.get());
  return {};
}

Result<std::unique_ptr<MasterCore>> NodeServer::open_core() {
  NMC_ASSIGN_OR_RETURN(SharedFiles files, SharedFiles::in_folder(options_.folder));
  MasterCore::Adopted adopted;
  auto core = MasterCore::adopt(options_.core, std::move(files), clock_, &adopted);
  if (core) {
    log_info("store: goes on in {}: {} objects in {} segments, {} clients", options_.folder.string(), adopted.objects,
             adopted.segments, adopted.clients);
    MutexLock lock(mutex_);
    for (const std::uint32_t number : (*core)->clients()) clients_[number] = {.ready = true};
    // An owner that died while nobody looked.
    for (const MasterCore::SegmentInfo& segment : (*core)->segments()) {
      if (segment.owner != 0 && segment.state == SegmentState::kMounted && !clients_.contains(segment.owner))
        NMC_RETURN_IF_ERROR((*core)->park(segment.number));
    }
    return core;
  }
  if (core.error().code != ErrorCode::kNotFound)
    log_warning("store: what lies in {} is of no use and is removed: {}", options_.folder.string(),
                core.error().message);
  NMC_ASSIGN_OR_RETURN(files, SharedFiles::in_folder(options_.folder));
  MasterCore::remove_files(files);
  return MasterCore::create(options_.core, std::move(files), clock_);
}

NodeServer::~NodeServer() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;  // connections that end from here on are our doing, not their clients' death
    wake_.notify_all();
  }
  server_.reset();
  if (housekeeper_.joinable()) housekeeper_.join();
  if (core_ == nullptr) {  // it never began: what was there stays, and nothing else
    if (made_folder_) remove_folder();
    return;
  }
  if (disk_thread_ != nullptr) disk_thread_->join();
  if (tiers_ != nullptr) core_->set_observer(nullptr);
  tiers_.reset();  // writes what is queued
  StoreStats stats;
  core_->fill_stats(stats);
  reader_.reset();
  core_->drop_client(own_client_);
  const bool nobody = core_->clients().empty();
  if (stats.objects > 0 || !nobody) {
    log_info("store: {} objects stay in {} for the next master", stats.objects, options_.folder.string());
    return;
  }
  core_.reset();
  remove_folder();
}

void NodeServer::remove_folder() {
  auto files = SharedFiles::in_folder(options_.folder);
  if (!files) return;
  MasterCore::remove_files(*files);
  for (const char* name : {kSocketName, kLockName}) files->remove(name);
  ::rmdir(options_.folder.c_str());
}

void NodeServer::fill_counters(StoreStats& stats) {
  core_->fill_counters(stats);
  if (tiers_ != nullptr) tiers_->fill_stats(stats);
}

std::size_t NodeServer::clients() const {
  MutexLock lock(mutex_);
  return clients_.size();
}

// ---- sessions and deaths ----

void NodeServer::on_open(net::Session& session) { session.state = std::make_unique<State>(); }

void NodeServer::on_close(net::Session& session) {
  const std::uint32_t number = static_cast<State&>(*session.state).client;
  if (number == 0) return;
  {
    MutexLock lock(mutex_);
    const auto found = clients_.find(number);
    if (found == clients_.end() || --found->second.sessions > 0 || stopping_) return;
    // A process that ends closes its descriptors one after another: its lock goes a moment after its socket.
    constexpr int kLooks = 200;
    bool dead = false;
    for (int look = 0; look < kLooks && !dead; ++look) {
      if (look > 0) ::sched_yield();
      dead = looks_dead(number, found->second);
    }
    if (!dead) {
      wake_.notify_all();
      return;
    }
    clients_.erase(found);
  }
  bury(number);
}

bool NodeServer::looks_dead(std::uint32_t number, const Client& client) {
  if (client.sessions > 0) return false;
  if (client.by_connection || !client.ready) return true;
  const PinTable* table = core_->find_client(number);
  return table == nullptr || !table->locked_by_another();
}

void NodeServer::bury(std::uint32_t number) {
  for (const MasterCore::SegmentInfo& segment : core_->segments()) {
    if (segment.owner != number || segment.state != SegmentState::kMounted) continue;
    log_info("store: the owner of segment {} is gone, it is parked", segment.name);
    if (const auto parked = core_->park(segment.number); !parked) log_warning("store: {}", parked.error().message);
  }
  core_->drop_client(number);
}

void NodeServer::keep_house() {
  for (;;) {
    {
      MutexLock lock(mutex_);
      const bool detached =
          std::any_of(clients_.begin(), clients_.end(), [](const auto& client) { return client.second.sessions == 0; });
      const auto pause = detached ? std::chrono::duration_cast<Nanos>(kLookAtDetached) : Nanos(kLookAtAll);
      if (!stopping_) wake_.wait_until(mutex_, std::chrono::steady_clock::now() + pause);
      if (stopping_) return;
    }
    look_after_clients();
    core_->keep_house(options_.parked_lifetime);
    reader_->drop_stale_segments();
  }
}

void NodeServer::look_after_clients() {
  std::vector<std::uint32_t> dead;
  {
    MutexLock lock(mutex_);
    for (auto client = clients_.begin(); client != clients_.end();) {
      if (!looks_dead(client->first, client->second)) {
        ++client;
        continue;
      }
      dead.push_back(client->first);
      client = clients_.erase(client);
    }
  }
  for (const std::uint32_t number : dead) bury(number);
}

}  // namespace nmc::store
