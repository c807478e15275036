// The processes of --mode pd-process: a keeper, workers of this host, and the master of their store unless there is one
// already. They share a folder in memory, with the packed weights, their sockets and their own store.
#pragma once

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/files.h"
#include "base/mutex.h"
#include "base/result.h"
#include "cli/keeper.h"
#include "cli/settings.h"
#include "cli/store_folder.h"
#include "engine/process_runtime.h"
#include "engine/runtime.h"
#include "model/decoder_weights.h"
#include "store/store.h"

namespace nmc::cli {

// Flags that a worker has in common with its server.
std::span<const std::string_view> worker_serving_flags();

// Ends a process that has a Unix socket but doesn't answer there: whoever keeps it starts another. Its own thread.
class SocketWatch {
 public:
  SocketWatch(std::string unix_path, Nanos deadline);
  ~SocketWatch();

 private:
  void run();
  const std::string path_;
  const Nanos deadline_;
  Mutex mutex_;
  CondVar wake_;
  bool stopping_ NMC_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

// Moves. Destroying it ends the processes and removes what they shared.
class WorkerProcesses {
 public:
  // Makes folder and keeper.
  static Result<WorkerProcesses> begin(const Settings& settings);
  WorkerProcesses(WorkerProcesses&&) = default;
  WorkerProcesses& operator=(WorkerProcesses&&) = delete;

  // For packing the weights where the workers find them.
  model::PackOptions pack_options() const;

  // The workers' store, seen from here; brings --dram-bytes to it. Starts its master unless there is one.
  Result<std::unique_ptr<store::Store>> join_store(const Settings& settings, std::size_t block_bytes);

  // Starts the workers and waits until each serves. Borrowed parts outlive the runtime.
  Result<std::unique_ptr<engine::Runtime>> start_workers(const Settings& settings, engine::RuntimeOptions options,
                                                         const model::ModelConfig& config, const kv::Namespace& ns,
                                                         store::Store& store);

 private:
  WorkerProcesses(StoreFolder folder, UniqueFd lock, std::unique_ptr<Keeper> keeper)
      : folder_(std::move(folder)), lock_(std::move(lock)), keeper_(std::move(keeper)) {}

  std::string worker_socket(const std::string& name) const { return (folder_.path() / (name + ".socket")).string(); }
  std::vector<std::string> worker_arguments(const Settings& settings, const std::string& name,
                                            const std::string& role) const;

  StoreFolder folder_;
  UniqueFd lock_;                   // of the folder, where no master of ours has it
  std::unique_ptr<Keeper> keeper_;  // ends first
  std::unique_ptr<SocketWatch> master_;
  std::string store_;  // "unix:PATH"
  int workers_ = 0;    // of this host
};

}  // namespace nmc::cli
