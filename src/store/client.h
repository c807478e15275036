// A client of a node's store: what the Python package, the engine and the benchmarks call.
//
// On the master's host it reads the shared index and segments itself: a lookup is no message. What changes the store
// (put, remove, mount) is a message over the Unix socket; a put of more than kInlineBytesMax fills shared memory in
// between. From another host everything goes over TCP. Which path was used is in counters().
//
// All methods are thread-safe and block. None throws; outcomes are those of store/codes.h. A master that goes away
// costs an outcome kRpcFail each until it is back, then the client finds it again by itself; what lies in shared memory
// stays readable meanwhile.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/files.h"
#include "base/result.h"
#include "store/codes.h"
#include "store/store.h"

namespace nmc::store {

struct ClientOptions {
  std::string server;                  // "unix:PATH" or "HOST:PORT"
  std::string hostname = "localhost";  // this client's name for others; its segment is called "hostname:port"
  // Memory that it brings to the store; 0: none, it only uses others'. From another host it is memory of the master's.
  std::uint64_t segment_bytes = 0;
  std::string token;  // of a server beyond loopback
  // TCP goes inside TLS: the file of the authorities by which the server's certificate must be signed; "": without.
  Path tls_ca;
  bool shared_memory = true;  // false: TCP only, as from another host
  // At the end its segment isn't unmounted but parked: its objects are there again for the next who brings as much.
  bool keep_segment = false;
  Nanos connect_deadline = std::chrono::seconds(2);
  Nanos progress_deadline = std::chrono::seconds(10);  // a server that moves no byte for so long has failed
};

// How an object is to be kept.
struct PutOptions {
  std::uint32_t replicas = 1;  // on different segments; fewer where there are fewer
  std::vector<std::string> preferred_segments;
  SoftPin soft_pin = SoftPin::kKeep;
  std::optional<std::uint64_t> soft_pin_ms;  // how long it lasts; not set: as the master says
  bool hard_pin = false;
  bool replace = false;  // takes the key over from an object that has it (upsert); else that one stays
};

struct ReplicaInfo {
  std::string segment;  // its name
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
};

struct ClientCounters {
  std::uint64_t shared_reads = 0, shared_read_bytes = 0;    // served from shared memory, without a message
  std::uint64_t shared_writes = 0, shared_write_bytes = 0;  // put through shared memory
  struct Carrier {
    std::uint64_t messages = 0, bytes_sent = 0, bytes_received = 0;  // payload bytes
  };
  Carrier unix_socket, tcp;
};

class Client {
 public:
  // Puts of at most so many bytes travel in the message.
  static constexpr std::size_t kInlineBytesMax = 64 << 10;

  // Errors say what to do: nobody listens at the address, another version, a token is wanted, no memory for the
  // segment.
  static Result<std::unique_ptr<Client>> connect(ClientOptions options);
  // Gives its segment back; objects that only lie there are gone. All views go before it.
  virtual ~Client() = default;
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  // Whether reads reach shared memory, as on the master's host. Stays as it is.
  virtual bool reads_in_place() const = 0;
  // Whether exists(), size_of() and read() take no message now, so that they wait for nobody: they read in place, and
  // the master has nothing below memory. (The first read of a segment still asks for it.)
  virtual bool reads_at_once() const = 0;
  // Whether view() of these waits for nobody now, and has at most so many bytes to look at. A hint: counts as no use.
  virtual bool at_hand(std::span<const std::string_view> keys, std::uint64_t bytes_max) = 0;

  // "hostname:port", by which others prefer this client's segment.
  virtual const std::string& name() const = 0;

  // An object's bytes: in place where shared memory reaches, else received.
  class View {
   public:
    View() = default;
    explicit View(Pin pin) : pin_(std::move(pin)) {}
    View(std::unique_ptr<std::byte[]> received, std::uint64_t bytes) : received_(std::move(received)), bytes_(bytes) {}
    std::span<const std::byte> bytes() const {
      return pin_ ? pin_.bytes() : std::span<const std::byte>(received_.get(), bytes_);
    }

   private:
    Pin pin_;
    std::unique_ptr<std::byte[]> received_;
    std::uint64_t bytes_ = 0;  // of `received_`
  };

  // 1, 0 or a code. Counts as a use: it renews the lease.
  virtual Outcome exists(std::string_view key) = 0;
  virtual void exists(std::span<const std::string_view> keys, std::span<Outcome> outcomes) = 0;
  virtual Outcome size_of(std::string_view key) = 0;

  // kOk and the object, held until the view goes; or a code.
  virtual void view(std::span<const std::string_view> keys, std::span<View> views, std::span<Outcome> outcomes) = 0;
  Outcome view(std::string_view key, View& view);
  // Copies each object into the memory that `place` gives for its size, which is the outcome. `place` is called without
  // a lock, perhaps on several threads at once for different keys, and again when what came got lost on the way. Its
  // error ends that key's reading, and perhaps that of others that come with it, with its code.
  using PlaceEach = std::function<Result<std::span<std::byte>>(std::size_t key, std::uint64_t bytes)>;
  virtual void fetch(std::span<const std::string_view> keys, const PlaceEach& place, std::span<Outcome> outcomes) = 0;
  // For a single key `place` is called on the caller's thread.
  using Place = std::function<Result<std::span<std::byte>>(std::uint64_t bytes)>;
  Outcome fetch(std::string_view key, const Place& place);
  // Copies the object into `to`, one span after the other; its size, or kInvalidParams when it is larger than they are,
  // which then are untouched.
  struct Read {
    std::string_view key;
    std::span<const std::span<std::byte>> to;
  };
  virtual void read(std::span<const Read> reads, std::span<Outcome> outcomes) = 0;
  Outcome read(std::string_view key, std::span<std::byte> to);
  // Parts of one object, each into its place; an outcome each. kInvalidParams: beyond the object's end.
  struct Range {
    std::uint64_t offset = 0;
    std::span<std::byte> to;
  };
  virtual void read_ranges(std::string_view key, std::span<const Range> ranges, std::span<Outcome> outcomes) = 0;

  // Stores the parts, joined. 0 also when the key is taken and stays so; kNoAvailableHandle: no room, or more
  // than any segment has; kInvalidParams: no key, or no bytes.
  struct Put {
    std::string_view key;
    std::span<const std::span<const std::byte>> parts;
  };
  virtual void put(std::span<const Put> puts, const PutOptions& options, std::span<Outcome> outcomes) = 0;
  Outcome put(std::string_view key, std::span<const std::byte> value, const PutOptions& options = {});

  // 0, kObjectNotFound, or kObjectHasLease when it was used lately and `force` isn't set.
  virtual void remove(std::span<const std::string_view> keys, bool force, std::span<Outcome> outcomes) = 0;
  Outcome remove(std::string_view key, bool force = false);
  // How many went, or a code. The engine's own keys ("nmc/...") stay. `pattern`: ECMAScript, found anywhere in the key;
  // kInvalidParams when it is none.
  virtual Outcome remove_matching(const std::string& pattern, bool force) = 0;
  virtual Outcome remove_all(bool force) = 0;

  // kOk and where the object lies, or a code.
  virtual Outcome replicas(std::string_view key, std::vector<ReplicaInfo>& replicas) = 0;
  // Whether the master answers.
  virtual bool healthy() = 0;
  virtual ClientCounters counters() = 0;

 protected:
  Client() = default;
};

}  // namespace nmc::store
