// A master of a command's own, in a process of its own as a real one is.
#pragma once

#include <sys/types.h>

#include <string>
#include <utility>

#include "base/result.h"
#include "base/syscall.h"

namespace nmc::cli {

// Moves. Ends its master, and all that it shared, when it goes; and the system does when this process dies.
class OwnMaster {
 public:
  // Starts this program as a master on a free loopback port and waits until it serves.
  static Result<OwnMaster> start();
  OwnMaster(OwnMaster&& other) noexcept
      : pid_(std::exchange(other.pid_, -1)), address_(std::move(other.address_)), log_(std::move(other.log_)) {}
  OwnMaster& operator=(OwnMaster&&) = delete;
  ~OwnMaster();

  const std::string& address() const { return address_; }  // "127.0.0.1:PORT"

 private:
  explicit OwnMaster(pid_t pid) : pid_(pid) {}
  pid_t pid_;
  std::string address_;
  UniqueFd log_;  // what it says; a full pipe is far more than it has to say
};

}  // namespace nmc::cli
