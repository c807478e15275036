// The process that keeps a server's child processes: it starts them, starts them again when they die, and ends them all
// when the server lets go, or dies, however it dies. A program of its own, since the server has threads and may be
// gone.
#pragma once

#include <sys/types.h>

#include <string>
#include <utility>
#include <vector>

#include "base/files.h"
#include "base/result.h"
#include "base/syscall.h"

namespace nmc::cli {

// A server's end of it. Moves. Destroying it ends the children, waits for that, and removes the folder.
class Keeper {
 public:
  // `folder` is the children's: it is gone when they are.
  static Result<Keeper> start(const Path& folder);
  Keeper(Keeper&& other) noexcept : process_(std::exchange(other.process_, -1)), orders_(std::move(other.orders_)) {}
  Keeper& operator=(Keeper&&) = delete;
  ~Keeper();

  // From now on there is a process `name` that runs this program with `arguments`. What it says goes to our standard
  // error, line by line with its name, but for the line `ready ADDRESS`.
  Result<void> keep(const std::string& name, const std::vector<std::string>& arguments);

 private:
  Keeper(pid_t process, UniqueFd orders) : process_(process), orders_(std::move(orders)) {}
  pid_t process_;
  UniqueFd orders_;  // closed, it means the end
};

}  // namespace nmc::cli
