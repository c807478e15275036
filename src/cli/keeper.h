// The process that keeps a server's child processes: it starts them, starts them again when they die, and ends them all
// when the server lets go, or dies, however it dies. A program of its own, since the server has threads and may be
// gone.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/files.h"
#include "base/mutex.h"
#include "base/result.h"
#include "base/syscall.h"

namespace nmc::cli {

// A server's end of it. Thread-safe. Destroying it ends the children, waits for that, and removes the folder. A keeper
// that dies takes its children along; another one starts them again.
class Keeper {
 public:
  // `folder` is the children's: it is gone when they are.
  static Result<std::unique_ptr<Keeper>> start(const Path& folder);
  Keeper(const Keeper&) = delete;
  Keeper& operator=(const Keeper&) = delete;
  ~Keeper();

  // From now on there is a process `name` that runs this program with `arguments`. What it says goes to our standard
  // error, line by line with its name, but for the line `ready ADDRESS`.
  void keep(const std::string& name, const std::vector<std::string>& arguments) NMC_EXCLUDES(mutex_);

 private:
  Keeper(Path folder, UniqueFd wake) : folder_(std::move(folder)), wake_(std::move(wake)) {}
  Result<void> begin_locked() NMC_REQUIRES(mutex_);
  void send_locked(std::string_view order) NMC_REQUIRES(mutex_);
  bool rest(Nanos time) const;  // true: the end has come
  void watch() NMC_EXCLUDES(mutex_);

  const Path folder_;
  const UniqueFd wake_;  // readable when the end has come
  Mutex mutex_;
  pid_t process_ NMC_GUARDED_BY(mutex_) = -1;
  UniqueFd orders_ NMC_GUARDED_BY(mutex_);                // closed, it means the end
  UniqueFd ended_ NMC_GUARDED_BY(mutex_);                 // readable once the process has
  std::vector<std::string> kept_ NMC_GUARDED_BY(mutex_);  // orders, for the next one
  int starts_ NMC_GUARDED_BY(mutex_) = 0;
  std::thread watcher_;
};

}  // namespace nmc::cli
