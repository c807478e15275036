// The same bytes over a plain TCP connection on loopback: what a carrier over TCP can reach at most.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <thread>
#include <vector>

#include "base/result.h"
#include "base/syscall.h"

namespace nmc::lab {

// A thread that answers requests for so many bytes, a connection each. Each connection belongs to one thread at a time.
class RawSocket {
 public:
  // Answers are cut from `source`, which outlives this.
  static Result<std::unique_ptr<RawSocket>> start(std::size_t connections, std::span<const std::byte> source);
  // Ends the connections and their threads.
  ~RawSocket();

  // Fills `to`, at most as long as the source, by one request.
  Result<void> fetch(std::size_t connection, std::span<std::byte> to);
  static constexpr std::size_t kRequestBytes = sizeof(std::uint64_t);

 private:
  explicit RawSocket(std::span<const std::byte> source) : source_(source) {}
  Result<void> connect(std::size_t connections);
  void answer(int fd) const;

  const std::span<const std::byte> source_;
  std::vector<UniqueFd> near_, far_;
  std::vector<std::thread> threads_;
};

}  // namespace nmc::lab
