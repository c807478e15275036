// What went through one connection, for its owner and for anybody who watches.
#pragma once

#include <atomic>
#include <cstdint>

namespace nmc::net {

// Counts whole messages, without the handshake; payload bytes are those behind the body. Written by the one thread that
// uses the connection, readable by any.
class MessageCounters {
 public:
  struct Values {
    std::uint64_t messages_sent = 0, payload_bytes_sent = 0;
    std::uint64_t messages_received = 0, payload_bytes_received = 0;
  };

  void count_sent(std::uint64_t payload_bytes) {
    add(messages_sent_, 1);
    add(payload_bytes_sent_, payload_bytes);
  }
  void count_received(std::uint64_t payload_bytes) {
    add(messages_received_, 1);
    add(payload_bytes_received_, payload_bytes);
  }

  Values values() const {
    return {.messages_sent = messages_sent_.load(std::memory_order_relaxed),
            .payload_bytes_sent = payload_bytes_sent_.load(std::memory_order_relaxed),
            .messages_received = messages_received_.load(std::memory_order_relaxed),
            .payload_bytes_received = payload_bytes_received_.load(std::memory_order_relaxed)};
  }

 private:
  // With one writer a load and a store do, and cost no locked instruction. Relaxed: figures, they order nothing.
  static void add(std::atomic<std::uint64_t>& counter, std::uint64_t by) {
    counter.store(counter.load(std::memory_order_relaxed) + by, std::memory_order_relaxed);
  }

  std::atomic<std::uint64_t> messages_sent_{0}, payload_bytes_sent_{0};
  std::atomic<std::uint64_t> messages_received_{0}, payload_bytes_received_{0};
};

}  // namespace nmc::net
