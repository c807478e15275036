// Moves whole messages of bytes from a sender to a receiver, by a carrier that is measured: through shared memory or a
// TCP socket. The sender fills memory that the carrier gave, so that nothing is copied before it must be.
//
// send() may be called by one thread at a time, receive() by one thread at a time; the two beside each other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "base/clock.h"
#include "base/result.h"
#include "base/syscall.h"

namespace nmc::transport {

// Memory for one message. Owns it; moves.
class Buffer {
 public:
  Buffer() = default;
  Buffer(UniqueFd fd, Mapping mapping) : fd_(std::move(fd)), mapping_(std::move(mapping)) {}

  std::span<std::byte> bytes() { return mapping_.bytes(); }
  std::span<const std::byte> bytes() const { return mapping_.bytes(); }
  int fd() const { return fd_.get(); }  // of a shared-memory segment, else -1

 private:
  UniqueFd fd_;
  Mapping mapping_;
};

struct MoverCounters {
  std::uint64_t messages_sent = 0, bytes_sent = 0;          // payload, whole messages only
  std::uint64_t messages_received = 0, bytes_received = 0;  // likewise
};

class Mover {
 public:
  virtual ~Mover() = default;

  virtual const char* carrier() const = 0;  // "shm", "tcp"

  // Zeroed memory for a message of `size` bytes. kResourceExhausted where the machine has none.
  virtual Result<Buffer> allocate(std::size_t size) = 0;

  // Moves a filled buffer to the receiver's side under `id`, unique among messages not yet received. Gives up when no
  // byte moves for the progress deadline (kDeadlineExceeded) or the peer is gone (kUnavailable); then nothing arrives.
  virtual Result<void> send(std::uint64_t id, Buffer buffer) = 0;

  // The message sent as `id`, waiting for the rest of it. Same errors as send().
  virtual Result<Buffer> receive(std::uint64_t id) = 0;

  // The receiver doesn't want it any more: whatever arrived or still arrives as `id` is dropped.
  virtual void discard(std::uint64_t id) = 0;

  virtual MoverCounters counters() const = 0;
};

struct MoverOptions {
  std::size_t message_bytes_max = std::size_t{4} << 30;
  Nanos progress_deadline = std::chrono::seconds(10);
};

// Both ends in this process.
Result<std::unique_ptr<Mover>> create_shm_mover(MoverOptions options = {});
// A loopback connection between two threads of this process; a connection is accepted only with its secret.
Result<std::unique_ptr<Mover>> create_tcp_mover(MoverOptions options = {});

}  // namespace nmc::transport
