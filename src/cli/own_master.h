// A master of a command's own, in a process of its own as a real one is.
#pragma once

#include <sys/types.h>

#include <string>
#include <utility>

#include "base/result.h"
#include "base/syscall.h"

namespace nmc::cli {

// Moves. The master ends, and all that it shared, when this goes or its process dies, however that dies.
class OwnMaster {
 public:
  // Starts this program as a master on a free loopback port and waits until it serves.
  static Result<OwnMaster> start();
  OwnMaster(OwnMaster&& other) noexcept
      : keeper_(std::exchange(other.keeper_, -1)),
        leash_(std::move(other.leash_)),
        log_(std::move(other.log_)),
        address_(std::move(other.address_)) {}
  OwnMaster& operator=(OwnMaster&&) = delete;
  ~OwnMaster();

  const std::string& address() const { return address_; }  // "127.0.0.1:PORT"

 private:
  OwnMaster(pid_t keeper, UniqueFd leash, UniqueFd log)
      : keeper_(keeper), leash_(std::move(leash)), log_(std::move(log)) {}
  pid_t keeper_;    // the process that ends the master
  UniqueFd leash_;  // when its last end is closed
  UniqueFd log_;    // what the master says; a full pipe is far more than it has to say
  std::string address_;
};

}  // namespace nmc::cli
