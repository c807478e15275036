#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <functional>
#include <new>

#include "base/check.h"
#include "base/failpoint.h"
#include "base/hash.h"
#include "base/log.h"
#include "store/client.h"
#include "store/master_link.h"
#include "store/protocol.h"
#include "store/wire_reads.h"

namespace nmc::store {
namespace {

using net::BodyReader;
using net::BodyWriter;
using net::Channel;

// Of one message's keys and payload on a Unix socket; the rest of a datagram is for lengths and options.
constexpr std::size_t kUnixMessageBytes = net::kDatagramBytesMax - (16 << 10);

constexpr std::uint64_t kTcpMessageBytes = 64 << 20;
constexpr std::size_t kPutsInMessage = 2048;  // keys of the greatest length still fit into a body

Outcome code_of(StoreCode code) { return outcome_of(code); }
Outcome code_of(const Error& error) { return outcome_of(store_code_for(error)); }

std::uint64_t size_of_parts(std::span<const std::span<const std::byte>> parts) {
  std::uint64_t bytes = 0;
  for (const auto& part : parts) bytes += part.size();
  return bytes;
}

class NodeClient final : public Client {
 public:
  explicit NodeClient(const ClientOptions& options) : link_(options) {}

  Result<void> open() { return link_.open(); }

  bool reads_in_place() const override { return link_.on_this_host(); }

  bool reads_at_once() const override {
    Membership* const shared = link_.membership();
    return shared != nullptr && !shared->reader().index().has_tier_below();
  }

  bool at_hand(std::span<const std::string_view> keys, std::uint64_t bytes_max) override {
    if (!reads_at_once()) return false;
    std::uint64_t bytes = 0;
    for (const std::string_view key : keys) {
      const auto found = link_.membership()->reader().at_hand(key);
      if (!found || *found > bytes_max - bytes) return false;
      bytes += *found;
    }
    return true;
  }

  const std::string& name() const override { return link_.name(); }

  Outcome exists(std::string_view key) override {
    Outcome outcome = 0;
    exists(std::span(&key, 1), std::span(&outcome, 1));
    return outcome;
  }

  void exists(std::span<const std::string_view> keys, std::span<Outcome> outcomes) override {
    Membership* const shared = link_.membership();
    if (shared == nullptr) return ask_exists(keys, outcomes);
    std::vector<std::size_t> missing;
    for (std::size_t i = 0; i < keys.size(); ++i) {
      const auto wrong = wrong_key(keys[i]);
      outcomes[i] = wrong ? code_of(*wrong) : shared->reader().probe(keys[i]) ? 1 : 0;
      if (outcomes[i] == 0 && shared->reader().index().has_tier_below()) missing.push_back(i);
    }
    shared_reads_.fetch_add(keys.size(), std::memory_order_relaxed);
    if (missing.empty()) return;
    std::vector<std::string_view> asked;
    for (const std::size_t i : missing) asked.push_back(keys[i]);
    std::vector<Outcome> below(asked.size());
    ask_exists(asked, below);
    for (std::size_t k = 0; k < missing.size(); ++k) outcomes[missing[k]] = below[k];
  }

  void ask_exists(std::span<const std::string_view> keys, std::span<Outcome> outcomes) {
    ask_for_keys(Op::kExists, keys, outcomes, [](BodyReader& reader) {
      return static_cast<Outcome>(static_cast<std::int32_t>(reader.get_u32("exists")));
    });
  }

  Outcome size_of(std::string_view key) override {
    if (const auto wrong = wrong_key(key)) return code_of(*wrong);
    if (Membership* shared = link_.membership()) {
      const std::int64_t bytes = shared->reader().size_of(key);
      shared_reads_.fetch_add(1, std::memory_order_relaxed);
      if (bytes != SharedStoreReader::kMissed) return bytes;
      if (!shared->reader().index().has_tier_below()) return code_of(StoreCode::kObjectNotFound);
    }
    Outcome outcome = 0;
    ask_for_keys(Op::kSizes, std::span(&key, 1), std::span(&outcome, 1),
                 [](BodyReader& reader) { return static_cast<Outcome>(reader.get_u64("size")); });
    return outcome;
  }

  using Client::fetch;
  using Client::view;

  void view(std::span<const std::string_view> keys, std::span<View> views, std::span<Outcome> outcomes) override {
    if (Membership* shared = link_.membership()) {
      restore(*shared, keys);
      for (std::size_t i = 0; i < keys.size(); ++i) outcomes[i] = view_shared(*shared, keys[i], views[i]);
      return;
    }
    // Memory that isn't touched before its bytes come: a size that the server made up costs addresses only.
    std::vector<std::unique_ptr<std::byte[]>> received(keys.size());
    fetch(
        keys,
        [&](std::size_t i, std::uint64_t bytes) -> Result<std::span<std::byte>> {
          received[i].reset(new (std::nothrow) std::byte[bytes]);
          if (received[i] == nullptr) return resource_exhausted("no memory for an object of {} bytes", bytes);
          return std::span(received[i].get(), bytes);
        },
        outcomes);
    for (std::size_t i = 0; i < keys.size(); ++i) {
      if (outcomes[i] < 0) continue;
      views[i] = View(std::move(received[i]), static_cast<std::uint64_t>(outcomes[i]));
      outcomes[i] = 0;
    }
  }

  void fetch(std::span<const std::string_view> keys, const PlaceEach& place, std::span<Outcome> outcomes) override {
    if (Membership* shared = link_.membership()) {
      restore(*shared, keys);
      for (std::size_t i = 0; i < keys.size(); ++i) {
        View view;
        outcomes[i] = view_shared(*shared, keys[i], view);
        if (outcomes[i] < 0) continue;
        const std::span<const std::byte> bytes = view.bytes();
        const auto to = place(i, bytes.size());
        outcomes[i] = to ? static_cast<Outcome>(bytes.size()) : code_of(to.error());
        if (to) std::memcpy(to->data(), bytes.data(), bytes.size());
      }
      return;
    }
    std::vector<WireRead> reads;
    for (const std::string_view key : keys) reads.push_back({.key = key, .bytes = UINT64_MAX});
    std::vector<std::span<std::byte>> to(keys.size());
    const auto place_one = [&](std::size_t i, std::uint64_t bytes) -> Result<Spans> {
      NMC_ASSIGN_OR_RETURN(to[i], place(i, bytes));
      return Spans(&to[i], 1);
    };
    read_over_wire(link_, reads, place_one, outcomes);
  }

  void read(std::span<const Read> reads, std::span<Outcome> outcomes) override {
    if (Membership* shared = link_.membership()) {
      if (shared->reader().index().has_tier_below()) {
        std::vector<std::string_view> keys;
        for (const Read& read : reads) keys.push_back(read.key);
        restore(*shared, keys);
      }
      for (std::size_t i = 0; i < reads.size(); ++i) outcomes[i] = read_shared(*shared, reads[i]);
      return;
    }
    std::vector<WireRead> wanted;
    for (const Read& read : reads) {
      std::uint64_t room = 0;
      for (const auto& span : read.to) room += span.size();
      wanted.push_back({.key = read.key, .bytes = room});
    }
    const auto place = [&](std::size_t i, std::uint64_t) -> Result<Spans> { return reads[i].to; };
    read_over_wire(link_, wanted, place, outcomes);
  }

  void read_ranges(std::string_view key, std::span<const Range> ranges, std::span<Outcome> outcomes) override {
    if (const auto wrong = wrong_key(key)) {
      std::fill(outcomes.begin(), outcomes.end(), code_of(*wrong));
      return;
    }
    if (Membership* shared = link_.membership()) {
      restore(*shared, std::span(&key, 1));
      const auto pin = shared->reader().lookup(key);
      for (std::size_t i = 0; i < ranges.size(); ++i) {
        const Range& range = ranges[i];
        outcomes[i] = code_of(StoreCode::kObjectNotFound);
        if (!pin) continue;
        const std::span<const std::byte> bytes = pin->bytes();
        outcomes[i] = code_of(StoreCode::kInvalidParams);
        if (range.offset > bytes.size() || range.to.size() > bytes.size() - range.offset) continue;
        std::memcpy(range.to.data(), bytes.data() + range.offset, range.to.size());
        count_shared_read(range.to.size());
        outcomes[i] = static_cast<Outcome>(range.to.size());
      }
      return;
    }
    std::vector<WireRead> wanted;
    for (const Range& range : ranges)
      wanted.push_back({.key = key, .bytes = range.to.size(), .whole = false, .offset = range.offset});
    const auto place = [&](std::size_t i, std::uint64_t) -> Result<Spans> { return Spans(&ranges[i].to, 1); };
    read_over_wire(link_, wanted, place, outcomes);
  }

  void put(std::span<const Put> puts, const PutOptions& options, std::span<Outcome> outcomes) override {
    // What can be answered here is; what is small goes along with a message; the rest is copied into shared memory.
    std::vector<std::size_t> small, large;
    Membership* shared = link_.membership();
    for (std::size_t i = 0; i < puts.size(); ++i) {
      const std::uint64_t bytes = size_of_parts(puts[i].parts);
      if (const auto wrong = wrong_key(puts[i].key)) {
        outcomes[i] = code_of(*wrong);
      } else if (bytes == 0) {
        outcomes[i] = code_of(StoreCode::kInvalidParams);
      } else if (shared != nullptr && !options.replace && shared->reader().contains(puts[i].key)) {
        outcomes[i] = 0;
      } else {
        (shared == nullptr || bytes <= kInlineBytesMax ? small : large).push_back(i);
      }
    }
    put_along(puts, small, options, outcomes);
    put_shared(puts, large, options, outcomes);
  }

  void remove(std::span<const std::string_view> keys, bool force, std::span<Outcome> outcomes) override {
    ask_for_keys(
        Op::kRemove, keys, outcomes,
        [](BodyReader& reader) { return static_cast<Outcome>(static_cast<std::int32_t>(reader.get_u32("code"))); },
        [force](BodyWriter& writer) { writer.put_u8(force ? 1 : 0); });
  }

  Outcome remove_matching(const std::string& pattern, bool force) override {
    return remove_some(false, pattern, force);
  }
  Outcome remove_all(bool force) override { return remove_some(true, "", force); }

  Outcome replicas(std::string_view key, std::vector<ReplicaInfo>& replicas) override {
    replicas.clear();
    if (const auto wrong = wrong_key(key)) return code_of(*wrong);
    BodyWriter body;
    body.put_string(key);
    const Result<void> done = link_.call(Op::kReplicas, body.bytes(), [&](const Channel::Reply& reply) -> Result<void> {
      BodyReader reader = reply.reader();
      const std::uint32_t count = reader.get_count("replicas", 20);
      for (std::uint32_t i = 0; i < count && reader.ok(); ++i) {
        ReplicaInfo info;
        info.segment = std::string(reader.get_string("segment"));
        info.offset = reader.get_u64("offset");
        info.bytes = reader.get_u64("bytes");
        replicas.push_back(std::move(info));
      }
      return reader.finish();
    });
    if (!done) return code_of(done.error());
    return replicas.empty() ? code_of(StoreCode::kObjectNotFound) : 0;
  }

  bool healthy() override { return link_.call(Op::kPing, {}).has_value(); }

  ClientCounters counters() override {
    ClientCounters counters;
    counters.shared_reads = shared_reads_.load(std::memory_order_relaxed);
    counters.shared_read_bytes = shared_read_bytes_.load(std::memory_order_relaxed);
    counters.shared_writes = shared_writes_.load(std::memory_order_relaxed);
    counters.shared_write_bytes = shared_write_bytes_.load(std::memory_order_relaxed);
    link_.add_to(counters);
    return counters;
  }

 private:
  void count_shared_read(std::uint64_t bytes) {
    shared_reads_.fetch_add(1, std::memory_order_relaxed);
    shared_read_bytes_.fetch_add(bytes, std::memory_order_relaxed);
  }

  // What isn't in memory may lie in a tier below, from where the master brings it up. A miss afterwards is one.
  void restore(Membership& shared, std::span<const std::string_view> keys) {
    if (!shared.reader().index().has_tier_below()) return;
    std::vector<std::string_view> missing;
    for (const std::string_view key : keys) {
      if (!wrong_key(key) && !shared.reader().contains(key)) missing.push_back(key);
    }
    if (missing.empty()) return;
    std::vector<Outcome> there(missing.size());
    ask_for_keys(
        Op::kRestore, missing, there,
        [](BodyReader& reader) { return static_cast<Outcome>(reader.get_u32("restored")); },
        [](BodyWriter& writer) { writer.put_u8(static_cast<std::uint8_t>(ObjectClass::kObject)).put_u64(0); });
  }

  Outcome view_shared(Membership& shared, std::string_view key, View& view) {
    if (const auto wrong = wrong_key(key)) return code_of(*wrong);
    auto pin = shared.reader().lookup(key);
    if (!pin) return code_of(StoreCode::kObjectNotFound);
    count_shared_read(pin->bytes().size());
    view = View(*std::move(pin));
    return 0;
  }

  Outcome read_shared(Membership& shared, const Read& read) {
    if (const auto wrong = wrong_key(read.key)) return code_of(*wrong);
    const std::int64_t copied = shared.reader().copy(read.key, read.to);
    if (copied == SharedStoreReader::kMissed) return code_of(StoreCode::kObjectNotFound);
    if (copied == SharedStoreReader::kTooLarge) return code_of(StoreCode::kInvalidParams);
    count_shared_read(static_cast<std::uint64_t>(copied));
    return copied;
  }

  // Messages of up to kUnixMessageBytes of keys, or as many as one takes.
  void ask_for_keys(Op op, std::span<const std::string_view> keys, std::span<Outcome> outcomes,
                    const std::function<Outcome(BodyReader&)>& outcome_in,
                    const std::function<void(BodyWriter&)>& put_head = nullptr) {
    for (std::size_t begin = 0, end = 0; begin < keys.size(); begin = end) {
      std::size_t bytes = 0;
      std::vector<std::string_view> sent;
      for (; end < keys.size() && end - begin < kBatchItemsMax / 16 && bytes < kUnixMessageBytes / 2; ++end) {
        const std::string_view key = keys[end].substr(0, kKeyBytesMax + 1);  // one too long is refused all the same
        bytes += key.size() + 8;
        sent.push_back(key);
      }
      BodyWriter body;
      if (put_head) put_head(body);
      body.put_u32(static_cast<std::uint32_t>(sent.size()));
      for (const std::string_view key : sent) body.put_string(key);
      const Result<void> done = link_.call(op, body.bytes(), [&](const Channel::Reply& reply) {
        BodyReader reader = reply.reader();
        for (std::size_t i = begin; i < end; ++i) outcomes[i] = outcome_in(reader);
        return reader.finish();
      });
      if (!done)
        std::fill(outcomes.begin() + static_cast<std::ptrdiff_t>(begin),
                  outcomes.begin() + static_cast<std::ptrdiff_t>(end), code_of(done.error()));
    }
  }

  Outcome remove_some(bool all, const std::string& pattern, bool force) {
    BodyWriter body;
    body.put_u8(force ? 1 : 0).put_u8(all ? 1 : 0).put_string(pattern);
    Outcome removed = 0;
    const Result<void> done = link_.call(Op::kRemoveMatching, body.bytes(), [&](const Channel::Reply& reply) {
      BodyReader reader = reply.reader();
      removed = static_cast<Outcome>(reader.get_u64("removed"));
      return reader.finish();
    });
    return done ? removed : code_of(done.error());
  }

  // The bytes travel with the message; over TCP several messages at once, when there is much.
  void put_along(std::span<const Put> puts, std::span<const std::size_t> which, const PutOptions& options,
                 std::span<Outcome> outcomes) {
    if (link_.on_this_host()) return put_messages(puts, which, kUnixMessageBytes, options, outcomes);
    std::vector<std::uint64_t> bytes;
    std::uint64_t total = 0;
    for (const std::size_t i : which) {
      bytes.push_back(size_of_parts(puts[i].parts));
      total += bytes.back();
    }
    std::vector<std::vector<std::size_t>> lanes = deal_to_lanes(bytes, lanes_for(total));
    for (std::vector<std::size_t>& lane : lanes) {
      for (std::size_t& k : lane) k = which[k];
    }
    in_lanes(lanes.size(),
             [&](std::size_t lane) { put_messages(puts, lanes[lane], kTcpMessageBytes, options, outcomes); });
    if (lanes.size() <= 1) return;
    // Those that found no room, perhaps because the others had it reserved, try again by themselves.
    for (std::size_t k = 0; k < which.size(); ++k) {
      if (outcomes[which[k]] == code_of(StoreCode::kNoAvailableHandle))
        put_messages(puts, which.subspan(k, 1), kTcpMessageBytes, options, outcomes);
    }
  }

  // Each of about so many bytes, at least one value.
  void put_messages(std::span<const Put> puts, std::span<const std::size_t> which, std::uint64_t bytes_max,
                    const PutOptions& options, std::span<Outcome> outcomes) {
    for (std::size_t begin = 0, end = 0; begin < which.size(); begin = end) {
      std::uint64_t bytes = 0;
      std::vector<net::ByteSpan> payload;
      BodyWriter items;
      for (; end < which.size() && end - begin < kPutsInMessage; ++end) {
        const Put& put = puts[which[end]];
        const std::uint64_t more = size_of_parts(put.parts);
        const std::uint64_t so_far = bytes + items.bytes().size();
        if (end > begin && so_far + more + put.key.size() + 16 > bytes_max) break;
        items.put_string(put.key).put_u64(more);
        for (const auto& part : put.parts) payload.push_back(part);
        bytes += more;
      }
      BodyWriter body;
      put_options(body, options);
      body.put_u32(static_cast<std::uint32_t>(end - begin)).put_fixed(items.bytes());
      const Result<void> done = link_.call(
          Op::kPut, body.bytes(),
          [&](const Channel::Reply& reply) {
            BodyReader reader = reply.reader();
            for (std::size_t i = begin; i < end; ++i)
              outcomes[which[i]] = static_cast<std::int32_t>(reader.get_u32("code"));
            return reader.finish();
          },
          payload);
      if (done) continue;
      for (std::size_t i = begin; i < end; ++i) outcomes[which[i]] = code_of(done.error());
    }
  }

  // Reserve, copy, commit.
  void put_shared(std::span<const Put> puts, std::span<const std::size_t> which, const PutOptions& options,
                  std::span<Outcome> outcomes) {
    constexpr std::size_t kAtOnce = 64;  // so that a batch larger than the store doesn't reserve all of it
    for (std::size_t begin = 0; begin < which.size(); begin += kAtOnce) {
      const auto together = which.subspan(begin, std::min(kAtOnce, which.size() - begin));
      put_some_shared(puts, together, options, outcomes);
      // Those that found no room, perhaps because the others had it reserved, try again by themselves.
      for (std::size_t i = 0; i < together.size() && together.size() > 1; ++i) {
        if (outcomes[together[i]] == code_of(StoreCode::kNoAvailableHandle))
          put_some_shared(puts, together.subspan(i, 1), options, outcomes);
      }
    }
  }

  void put_some_shared(std::span<const Put> puts, std::span<const std::size_t> which, const PutOptions& options,
                       std::span<Outcome> outcomes) {
    Membership* shared = link_.membership();
    const Membership::PutAtWork at_work(*shared);
    std::vector<std::vector<PlaceOnWire>> places(which.size());  // a place for each copy
    BodyWriter body;
    put_options(body, options);
    body.put_u8(static_cast<std::uint8_t>(ObjectClass::kObject)).put_u8(static_cast<std::uint8_t>(Tenure::kPut));
    body.put_u32(static_cast<std::uint32_t>(which.size()));
    for (const std::size_t i : which) body.put_u64(size_of_parts(puts[i].parts));
    const Result<void> reserved = link_.call(Op::kReserve, body.bytes(), [&](const Channel::Reply& reply) {
      BodyReader reader = reply.reader();
      for (std::size_t i = 0; i < which.size(); ++i) {
        outcomes[which[i]] = static_cast<std::int32_t>(reader.get_u32("code"));
        if (outcomes[which[i]] != 0) continue;
        const std::uint8_t copies = reader.get_u8("copies");
        for (std::uint8_t c = 0; c < copies && reader.ok(); ++c) places[i].push_back(get_place(reader));
      }
      return reader.finish();
    });
    if (!reserved) {
      for (const std::size_t i : which) outcomes[i] = code_of(reserved.error());
      return;
    }
    if (link_.membership() != shared) {  // joined anew meanwhile: the places are in another store
      for (const std::size_t i : which) outcomes[i] = code_of(StoreCode::kRpcFail);
      return;
    }
    BodyWriter commits, aborts;
    std::vector<std::size_t> committing;  // of `which`
    std::uint32_t aborting = 0;
    for (std::size_t i = 0; i < which.size(); ++i) {
      if (places[i].empty()) continue;
      const Put& put = puts[which[i]];
      const auto checksum = fill_copies(*shared, places[i], put);
      if (!checksum) {
        log_warning("store: {}", checksum.error().message);
        outcomes[which[i]] = code_of(StoreCode::kTransferFail);
        for (const PlaceOnWire& place : places[i]) aborts.put_u32(place.entry).put_u64(place.generation);
        aborting += static_cast<std::uint32_t>(places[i].size());
        continue;
      }
      commits.put_u32(places[i][0].entry).put_u64(places[i][0].generation);
      commits.put_u8(static_cast<std::uint8_t>(places[i].size() - 1));
      for (std::size_t c = 1; c < places[i].size(); ++c)
        commits.put_u32(places[i][c].entry).put_u64(places[i][c].generation);
      commits.put_u64(*checksum).put_string(put.key);
      committing.push_back(i);
    }
    if (aborting > 0) {
      BodyWriter message;
      message.put_u64(shared->reader().pins().identity()).put_u32(aborting).put_fixed(aborts.bytes());
      (void)link_.call(Op::kAbort, message.bytes());
    }
    if (committing.empty()) return;
    BodyWriter message;
    put_options(message, options);
    message.put_u64(shared->reader().pins().identity()).put_u8(0);
    message.put_u32(static_cast<std::uint32_t>(committing.size())).put_fixed(commits.bytes());
    const Result<void> done = link_.call(Op::kCommit, message.bytes(), [&](const Channel::Reply& reply) {
      BodyReader reader = reply.reader();
      for (const std::size_t i : committing) outcomes[which[i]] = static_cast<std::int32_t>(reader.get_u32("code"));
      return reader.finish();
    });
    for (const std::size_t i : committing) {
      Outcome& outcome = outcomes[which[i]];
      if (!done) outcome = code_of(done.error());
      if (outcome != code_of(StoreCode::kIllegalClient)) continue;
      // Sent twice, because the first answer was lost, a commit that succeeded is refused. An object that was to be
      // replaced proves nothing: it has to be ours.
      const auto found = shared->reader().lookup(puts[which[i]].key);
      if (found && (!options.replace || found->generation() == places[i][0].generation)) outcome = 0;
    }
  }

  // The checksum of what all copies now hold.
  Result<std::uint64_t> fill_copies(Membership& shared, std::span<const PlaceOnWire> places, const Put& put) {
    std::uint64_t checksum = 0;
    for (const PlaceOnWire& place : places) {
      NMC_ASSIGN_OR_RETURN(const std::span<std::byte> space, shared.writable(place, size_of_parts(put.parts)));
      if (auto injected = failpoint("store.fill")) log_warning("store: {}", injected->message);
      checksum = fill(space, put.parts);
      shared_writes_.fetch_add(1, std::memory_order_relaxed);
      shared_write_bytes_.fetch_add(space.size(), std::memory_order_relaxed);
    }
    return checksum;
  }

  static std::uint64_t fill(std::span<std::byte> space, std::span<const std::span<const std::byte>> parts) {
    if (parts.size() == 1) return copy_and_checksum64(space, parts[0]);
    std::span<std::byte> left = space;
    for (const auto& part : parts) {
      if (!part.empty()) std::memcpy(left.data(), part.data(), part.size());
      left = left.subspan(part.size());
    }
    return checksum64(std::span<const std::byte>(space));
  }

  MasterLink link_;
  std::atomic<std::uint64_t> shared_reads_{0}, shared_read_bytes_{0}, shared_writes_{0}, shared_write_bytes_{0};
};

}  // namespace

Result<std::unique_ptr<Client>> Client::connect(ClientOptions options) {
  auto client = std::make_unique<NodeClient>(std::move(options));
  NMC_RETURN_IF_ERROR(client->open());
  return client;
}

Outcome Client::read(std::string_view key, std::span<std::byte> to) {
  const Read read{key, std::span(&to, 1)};
  Outcome outcome = 0;
  this->read(std::span(&read, 1), std::span(&outcome, 1));
  return outcome;
}

Outcome Client::view(std::string_view key, View& view) {
  Outcome outcome = 0;
  this->view(std::span(&key, 1), std::span(&view, 1), std::span(&outcome, 1));
  return outcome;
}

Outcome Client::fetch(std::string_view key, const Place& place) {
  Outcome outcome = 0;
  fetch(
      std::span(&key, 1), [&](std::size_t, std::uint64_t bytes) { return place(bytes); }, std::span(&outcome, 1));
  return outcome;
}

Outcome Client::put(std::string_view key, std::span<const std::byte> value, const PutOptions& options) {
  const Put put{key, std::span(&value, 1)};
  Outcome outcome = 0;
  this->put(std::span(&put, 1), options, std::span(&outcome, 1));
  return outcome;
}

Outcome Client::remove(std::string_view key, bool force) {
  Outcome outcome = 0;
  remove(std::span(&key, 1), force, std::span(&outcome, 1));
  return outcome;
}

}  // namespace nmc::store
