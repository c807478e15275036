// The master of a node: opens or adopts the shared store in a folder and serves its clients over a Unix socket there
// and over TCP.
//
// One folder has one living master, the holder of its lock. Clients of this host get the shared files and read by
// themselves; everything that changes the store comes here. A client is dead when the lock on its pin table is gone: a
// closed connection is only the reason to look.
#pragma once

// clang-format off: before Asio
#include "net/asio.h"
// clang-format on

#include <boost/asio/thread_pool.hpp>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <regex>
#include <string>
#include <thread>

#include "base/clock.h"
#include "base/files.h"
#include "base/mutex.h"
#include "base/result.h"
#include "net/channel_server.h"
#include "store/master_core.h"
#include "store/operation_counters.h"
#include "store/protocol.h"
#include "store/tiers.h"

namespace nmc::store {

struct NodeServerOptions {
  Path folder;  // of the shared files and the socket
  CoreOptions core;
  std::string tcp_host;  // "": no TCP
  std::uint16_t tcp_port = 0;
  Path tls_cert, tls_key;  // both or neither: TCP goes inside TLS
  std::string token;
  bool insecure = false;
  Path disk_dir;  // "": objects lie in memory only
  std::uint64_t disk_bytes = std::uint64_t{8} << 30;
  // How long what a dead owner left is kept for the next one.
  Nanos parked_lifetime = std::chrono::minutes(10);
  const Clock* clock = &real_clock();
};

// Thread-safe.
class NodeServer final : private net::MessageHandler {
 public:
  static constexpr const char* kSocketName = "socket";
  static constexpr const char* kLockName = "lock";

  // kAlreadyExists: a living master has the folder, or somebody the port. kPermissionDenied: the folder is not ours
  // alone. An index that can't be used is removed, with all that belonged to it, and said so.
  static Result<std::unique_ptr<NodeServer>> start(NodeServerOptions options);
  // Stops serving. The files stay for the next master, unless no object and no client is left.
  ~NodeServer() override;

  std::uint16_t tcp_port() const { return server_->tcp_port(); }
  MasterCore& core() { return *core_; }
  std::size_t clients() const NMC_EXCLUDES(mutex_);
  const OperationCounters& operations() const { return operations_; }
  // Waits until all that was put before is on disk, if there is one. kIo: some of it isn't, and won't be.
  Result<void> flush() { return tiers_ == nullptr ? Result<void>() : tiers_->flush(); }
  // What core() and the disk count.
  void fill_counters(StoreStats& stats);
  // As the message does: all that users put, but for leased objects unless `force`; how many those were.
  std::uint64_t remove_all(bool force);

 private:
  struct Client {
    int sessions = 0;
    // Its death is known from its connections: of another host, or in this process, whose own locks can't be seen.
    bool by_connection = false;
    bool ready = false;  // holds the lock
    std::string hostname;
  };
  struct State final : net::SessionState {
    std::uint32_t client = 0;  // 0: none, as over TCP
  };
  using Awaited = boost::asio::awaitable<net::Reply>;

  explicit NodeServer(NodeServerOptions options);
  Result<void> open();
  Result<std::unique_ptr<MasterCore>> open_core();
  Result<void> open_disk();
  void remove_folder();  // unless there is something of others in it

  // net::MessageHandler
  void on_open(net::Session& session) override;
  void on_close(net::Session& session) override;
  Awaited handle(net::Session& session, net::Request& request) override;

  net::Reply answer(net::Session& session, net::Request& request);  // any that needn't wait

  // One a message.
  net::Reply where();
  net::Reply join(net::Session& session, net::Request& request);
  net::Reply attach(net::Session& session, net::Request& request);
  net::Reply ready(net::Session& session);
  net::Reply leave(net::Session& session);
  net::Reply segment_file(net::Session& session, net::Request& request);
  Awaited mount(net::Session& session, net::Request& request);
  boost::asio::awaitable<Result<std::uint32_t>> mount_now(std::string name, std::uint64_t bytes, std::uint32_t client,
                                                          bool again) NMC_EXCLUDES(mutex_);
  net::Reply unmount(net::Session& session, net::Request& request);
  net::Reply reserve(net::Session& session, net::Request& request);
  net::Reply commit(net::Session& session, net::Request& request);
  net::Reply abort(net::Session& session, net::Request& request);
  Result<void> check_places_are_of(std::uint32_t client, std::uint64_t identity);
  Awaited put(net::Session& session, net::Request& request);
  net::Reply exists(net::Request& request);
  net::Reply sizes(net::Request& request);
  Awaited read(net::Request& request);
  Awaited restore(net::Request& request);
  net::Reply remove(net::Request& request);
  net::Reply remove_matching(net::Request& request);
  net::Reply replicas(net::Request& request);
  net::Reply ping();
  net::Reply stats();

  bool grants(const PutOptions& options) const;  // the soft pin's time isn't more than anybody gets
  Result<std::vector<MasterCore::Space>> reserve_copies(MasterCore::Wish wish, const PutOptions& options);
  net::Reply reserve_blocks(const MasterCore::Wish& wish, std::span<const std::uint64_t> sizes);
  boost::asio::awaitable<Result<StoreCode>> put_one(net::Session& session, net::Request& request, std::string_view key,
                                                    std::uint64_t bytes, const PutOptions& options);

  bool is_kept(std::string_view key);
  boost::asio::awaitable<void> restore_missing(std::vector<std::string> keys, ObjectClass object_class,
                                               std::uint64_t bytes);
  boost::asio::awaitable<void> restore_now(std::vector<std::string> keys, ObjectClass object_class,
                                           std::uint64_t bytes);
  MasterCore::Removal remove_object(std::string_view key, bool force);
  std::uint64_t remove_keys(const std::regex* pattern, bool force);  // nullptr: all

  // Deaths.
  bool looks_dead(std::uint32_t number, const Client& client);
  void bury(std::uint32_t number) NMC_EXCLUDES(mutex_);
  void keep_house() NMC_EXCLUDES(mutex_);
  void look_after_clients() NMC_EXCLUDES(mutex_);

  const NodeServerOptions options_;
  UniqueFd lock_;
  bool made_folder_ = false;  // there was no master's before
  TouchClock clock_;
  std::unique_ptr<MasterCore> core_;
  std::unique_ptr<SharedStoreReader> reader_;  // for those who can't read by themselves
  std::unique_ptr<Tiers> tiers_;               // may be null
  // For what loops mustn't wait for.
  std::unique_ptr<boost::asio::thread_pool> disk_thread_;
  boost::asio::thread_pool mount_thread_{1};
  std::uint32_t own_client_ = 0;
  OperationCounters operations_;

  mutable Mutex mutex_;
  std::map<std::uint32_t, Client> clients_ NMC_GUARDED_BY(mutex_);
  bool stopping_ NMC_GUARDED_BY(mutex_) = false;
  CondVar wake_;  // stopping, or a client to look after
  std::thread housekeeper_;
  std::unique_ptr<net::ChannelServer> server_;  // last: its loops use all of the above
};

}  // namespace nmc::store
