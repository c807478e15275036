#include "lab/store_bench_case.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "base/rng.h"

namespace nmc::lab {
namespace {

constexpr std::size_t kReadSetBytes = std::size_t{64} << 20;
constexpr std::size_t kPutRoomBytes = std::size_t{64} << 20;
constexpr std::size_t kReadSetObjects = 64;

using store::Outcome;

Result<void> expect(std::string_view what, Outcome outcome, Outcome wanted) {
  if (outcome == wanted) return {};
  const std::string told = outcome < 0 ? store::store_code_name(outcome) : std::to_string(outcome);
  if (outcome == store::outcome_of(store::StoreCode::kRpcFail)) return unavailable("{}: the master is gone", what);
  return internal_error("{}: {}, expected {}", what, told, wanted);
}

std::uint64_t socket_bytes(const store::ClientCounters& counters) {
  return counters.unix_socket.bytes_sent + counters.unix_socket.bytes_received + counters.tcp.bytes_sent +
         counters.tcp.bytes_received;
}

// The keys that a round's threads put, each thread its own, and take away again outside the times.
class PutKeys {
 public:
  PutKeys(BenchGround& ground, store::Client& client, std::size_t threads, std::size_t each)
      : ground_(ground), client_(client), each_(each), keys_(threads) {}
  ~PutKeys() {
    for (std::size_t t = 0; t < keys_.size(); ++t) (void)remove(t);
  }

  const std::string& add(std::size_t thread) { return keys_[thread].emplace_back(ground_.fresh_key()); }
  // The keys of a batch.
  std::span<const std::string> add(std::size_t thread, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) add(thread);
    return std::span<const std::string>(keys_[thread]).last(count);
  }
  // Removes them when the next call could be one too many.
  Result<void> make_room(std::size_t thread, std::size_t next) {
    return keys_[thread].size() + next > each_ ? remove(thread) : Result<void>();
  }

 private:
  Result<void> remove(std::size_t thread) {
    std::vector<std::string_view> views(keys_[thread].begin(), keys_[thread].end());
    std::vector<Outcome> outcomes(views.size());
    client_.remove(views, true, outcomes);
    keys_[thread].clear();
    for (const Outcome outcome : outcomes) NMC_RETURN_IF_ERROR(expect("remove", outcome, 0));
    return {};
  }

  BenchGround& ground_;
  store::Client& client_;
  const std::size_t each_;
  std::vector<std::vector<std::string>> keys_;
};

// One round of one case: builds the call, drives it twice.
class Round {
 public:
  Round(BenchGround& ground, const StoreBenchOptions& options, const StoreBenchRow& row, Nanos time, std::uint64_t seed)
      : ground_(ground), row_(row), load_(options.load), seed_(seed), next_(row.threads) {
    load_options_.threads = row.threads;
    load_options_.duration = time / 2;
    load_options_.should_stop = options.should_stop;
  }

  Result<RoundFigures> run() {
    if (row_.op == StoreOp::kRemove) NMC_RETURN_IF_ERROR(prepare_removal());
    PutKeys keys(ground_, client(), row_.threads, std::max(row_.batch, ground_.put_room(row_.bytes) / row_.threads));
    const Operation call = call_of(keys);
    Operation between;
    if (row_.op == StoreOp::kPut || row_.op == StoreOp::kBatchPut)
      between = [&](std::size_t thread) { return keys.make_room(thread, row_.batch); };
    const store::ClientCounters before = client().counters();
    NMC_ASSIGN_OR_RETURN(const ClosedRun closed, run_closed(load_options_, call, between));
    RoundFigures figures{.calls = closed.us.size(),
                         .seconds = closed.seconds,
                         .core_wait = closed.core_wait,
                         .p50_us = quantile(closed.us, 0.5),
                         .p95_us = quantile(closed.us, 0.95),
                         .p99_us = quantile(closed.us, 0.99),
                         .logical_bytes = closed.us.size() * payload_a_call()};
    figures.physical_bytes = physical_bytes(before, figures);
    if (between) {
      for (std::size_t t = 0; t < row_.threads; ++t) NMC_RETURN_IF_ERROR(keys.make_room(t, SIZE_MAX / 2));
      // All of them fit, so that none has to be removed within the times.
      load_options_.calls_max = std::max<std::size_t>(1, ground_.put_room(row_.bytes) / row_.batch);
    }
    if (row_.op == StoreOp::kRemove) load_options_.calls_max = removable_.size() - next_removal_.load();
    const double rate = load_ * static_cast<double>(closed.us.size()) / closed.seconds;
    NMC_ASSIGN_OR_RETURN(const OpenRun open, run_open(load_options_, rate, seed_, call));
    figures.service_p50_us = quantile(open.service_us, 0.5);
    figures.service_p99_us = quantile(open.service_us, 0.99);
    figures.wait_p50_us = quantile(open.wait_us, 0.5);
    figures.wait_p99_us = quantile(open.wait_us, 0.99);
    return figures;
  }

 private:
  store::Client& client() { return ground_.client(row_.carrier); }
  bool is_reference() const { return row_.op == StoreOp::kMemcpy || row_.op == StoreOp::kRawSocket; }
  std::uint64_t payload_a_call() const {
    return row_.op == StoreOp::kExists || row_.op == StoreOp::kRemove ? 0 : row_.bytes * row_.batch;
  }

  std::uint64_t physical_bytes(const store::ClientCounters& before, const RoundFigures& figures) {
    if (row_.op == StoreOp::kMemcpy) return figures.logical_bytes;
    if (row_.op == StoreOp::kRawSocket) return figures.logical_bytes + figures.calls * RawSocket::kRequestBytes;
    const store::ClientCounters after = client().counters();
    std::uint64_t bytes = socket_bytes(after) - socket_bytes(before);
    bytes += after.shared_write_bytes - before.shared_write_bytes;
    // Bytes that a view shows where they lie move nowhere.
    if (row_.op != StoreOp::kGet) bytes += after.shared_read_bytes - before.shared_read_bytes;
    return bytes;
  }

  // The next of the read set's objects for a thread; threads begin at different ones.
  std::size_t next_object(std::size_t thread) {
    const std::size_t count = ground_.read_set(row_.bytes).keys.size();
    return (thread * count / row_.threads + next_[thread].value++) % count;
  }

  Operation call_of(PutKeys& keys) {
    switch (row_.op) {
      case StoreOp::kMemcpy: return [this](std::size_t t) { return copy(t); };
      case StoreOp::kRawSocket:
        return [this](std::size_t t) { return ground_.socket().fetch(t, ground_.room(t, row_.bytes)); };
      case StoreOp::kPut: return [this, &keys](std::size_t t) { return put(t, keys); };
      case StoreOp::kGet: return [this](std::size_t t) { return get(t); };
      case StoreOp::kGetInto: return [this](std::size_t t) { return get_into(t); };
      case StoreOp::kBatchGetInto: return [this](std::size_t t) { return batch_get_into(t); };
      case StoreOp::kBatchPut: return [this, &keys](std::size_t t) { return batch_put(t, keys); };
      case StoreOp::kExists: return [this](std::size_t t) { return exists(t); };
      case StoreOp::kRemove: return [this](std::size_t) { return remove(); };
    }
    return nullptr;
  }

  Result<void> copy(std::size_t thread) {
    const auto from = ground_.copy_source(row_.bytes, next_object(thread));
    std::memcpy(ground_.room(thread, row_.bytes).data(), from.data(), from.size());
    return {};
  }
  Result<void> put(std::size_t thread, PutKeys& keys) {
    return expect("put", client().put(keys.add(thread), ground_.content(row_.bytes)), 0);
  }
  Result<void> get(std::size_t thread) {
    store::Client::View view;
    const Outcome outcome = client().view(ground_.read_set(row_.bytes).keys[next_object(thread)], view);
    NMC_RETURN_IF_ERROR(expect("get", outcome, 0));
    return expect("get", static_cast<Outcome>(view.bytes().size()), static_cast<Outcome>(row_.bytes));
  }
  Result<void> get_into(std::size_t thread) {
    const std::string& key = ground_.read_set(row_.bytes).keys[next_object(thread)];
    return expect("get_into", client().read(key, ground_.room(thread, row_.bytes)), static_cast<Outcome>(row_.bytes));
  }
  Result<void> batch_get_into(std::size_t thread) {
    const std::span<std::byte> room = ground_.room(thread, row_.bytes * row_.batch);
    std::vector<std::span<std::byte>> to(row_.batch);
    std::vector<store::Client::Read> reads(row_.batch);
    std::vector<Outcome> outcomes(row_.batch);
    for (std::size_t i = 0; i < row_.batch; ++i) {
      to[i] = room.subspan(i * row_.bytes, row_.bytes);
      reads[i] = {ground_.read_set(row_.bytes).keys[next_object(thread)], std::span(&to[i], 1)};
    }
    client().read(reads, outcomes);
    for (const Outcome outcome : outcomes)
      NMC_RETURN_IF_ERROR(expect("batch_get_into", outcome, static_cast<Outcome>(row_.bytes)));
    return {};
  }
  Result<void> batch_put(std::size_t thread, PutKeys& keys) {
    const std::span<const std::byte> value = ground_.content(row_.bytes);
    std::vector<store::Client::Put> puts;
    for (const std::string& key : keys.add(thread, row_.batch)) puts.push_back({key, std::span(&value, 1)});
    std::vector<Outcome> outcomes(row_.batch);
    client().put(puts, {}, outcomes);
    for (const Outcome outcome : outcomes) NMC_RETURN_IF_ERROR(expect("batch_put", outcome, 0));
    return {};
  }
  Result<void> exists(std::size_t thread) {
    return expect("exists", client().exists(ground_.read_set(row_.bytes).keys[next_object(thread)]), 1);
  }

  // As many objects as a round's calls may take away.
  Result<void> prepare_removal() {
    removable_.resize(std::min<std::size_t>(2'000, ground_.put_room(row_.bytes)));
    for (std::string& key : removable_) {
      key = ground_.fresh_key();
      NMC_RETURN_IF_ERROR(expect("put", client().put(key, ground_.content(row_.bytes)), 0));
    }
    load_options_.calls_max = removable_.size() / 2;
    load_options_.calls_min = 1;
    return {};
  }
  Result<void> remove() {
    const std::size_t at = next_removal_.fetch_add(1);
    if (at >= removable_.size()) return {};  // no more are there
    return expect("remove", client().remove(removable_[at], true), 0);
  }

  struct alignas(64) Counter {
    std::size_t value = 0;
  };

  BenchGround& ground_;
  const StoreBenchRow& row_;
  const double load_;
  const std::uint64_t seed_;
  LoadOptions load_options_;
  std::vector<Counter> next_;  // a thread
  std::vector<std::string> removable_;
  std::atomic<std::size_t> next_removal_{0};
};

}  // namespace

Result<std::unique_ptr<BenchGround>> BenchGround::create(const StoreBenchOptions& options) {
  std::unique_ptr<BenchGround> ground(new BenchGround(options));
  NMC_RETURN_IF_ERROR(ground->lay_out());
  NMC_RETURN_IF_ERROR(ground->connect());
  NMC_RETURN_IF_ERROR(ground->put_read_sets());
  return ground;
}

BenchGround::~BenchGround() {
  if (shm_ == nullptr) return;
  for (const ReadSet& set : read_sets_) {
    for (const std::string& key : set.keys) (void)shm_->remove(key, true);
  }
}

Result<void> BenchGround::lay_out() {
  const std::size_t largest = *std::max_element(options_.sizes.begin(), options_.sizes.end());
  const std::size_t threads = *std::max_element(options_.threads.begin(), options_.threads.end());
  std::size_t copied = 0, rooms = 0, read = 0;
  for (const std::size_t bytes : options_.sizes) {
    const std::size_t objects = std::clamp<std::size_t>(kReadSetBytes / bytes, 2, kReadSetObjects);
    ReadSet& set = read_sets_.emplace_back(ReadSet{bytes, {}});
    for (std::size_t i = 0; i < objects; ++i)
      set.keys.push_back("nmc-bench/r/" + std::to_string(bytes) + "/" + std::to_string(i));
    copied = std::max(copied, objects * bytes);
    rooms = std::max(rooms, batch_of(bytes) * bytes);
    read += objects * bytes;
  }
  put_bytes_ = std::max(kPutRoomBytes, threads * rooms);
  // A quarter more than the objects: space that they can't use, between others.
  segment_bytes_ = (read + put_bytes_) * 5 / 4 + (std::size_t{16} << 20);
  NMC_ASSIGN_OR_RETURN(source_, Mapping::anonymous(std::max(copied, largest)));
  auto* const words = reinterpret_cast<std::uint64_t*>(source_.data());
  for (std::size_t i = 0; i < source_.size() / sizeof(std::uint64_t); ++i) words[i] = mix64(i);
  for (std::size_t t = 0; t < threads; ++t) {
    NMC_ASSIGN_OR_RETURN(Mapping room, Mapping::anonymous(rooms));
    std::memset(room.data(), 1, room.size());
    rooms_.push_back(std::move(room));
  }
  NMC_ASSIGN_OR_RETURN(socket_, RawSocket::start(threads, source_.bytes()));
  return {};
}

Result<void> BenchGround::connect() {
  store::ClientOptions options;
  options.server = options_.server;
  options.token = options_.token;
  options.hostname = "store-bench";
  options.segment_bytes = segment_bytes_;
  NMC_ASSIGN_OR_RETURN(shm_, store::Client::connect(options));
  if (!shm_->reads_in_place())
    return invalid_argument("{}: a master of another host, expected one of this host", options_.server);
  const auto& carriers = options_.carriers;
  if (std::find(carriers.begin(), carriers.end(), StoreCarrier::kTcp) == carriers.end()) return {};
  options.segment_bytes = 0;
  options.shared_memory = false;
  NMC_ASSIGN_OR_RETURN(tcp_, store::Client::connect(options));
  return {};
}

Result<void> BenchGround::put_read_sets() {
  for (const ReadSet& set : read_sets_) {
    for (const std::string& key : set.keys) {
      (void)shm_->remove(key, true);  // of a run that was killed
      NMC_RETURN_IF_ERROR(
          expect("put of what is to be read", shm_->put(key, content(set.bytes), {.hard_pin = true}), 0));
    }
  }
  return {};
}

store::Client& BenchGround::client(StoreCarrier carrier) {
  return carrier == StoreCarrier::kTcp && tcp_ != nullptr ? *tcp_ : *shm_;
}

const ReadSet& BenchGround::read_set(std::size_t bytes) const {
  const auto found =
      std::find_if(read_sets_.begin(), read_sets_.end(), [&](const ReadSet& set) { return set.bytes == bytes; });
  NMC_REQUIRE(found != read_sets_.end(), "bytes={}", bytes);
  return *found;
}

std::span<std::byte> BenchGround::room(std::size_t thread, std::size_t bytes) { return {rooms_[thread].data(), bytes}; }

std::span<const std::byte> BenchGround::copy_source(std::size_t bytes, std::size_t n) const {
  return source_.bytes().subspan(n * bytes, bytes);
}

std::size_t BenchGround::batch_of(std::size_t bytes) const {
  return std::clamp<std::size_t>(StoreBenchOptions::kBatchBytesMax / bytes, 1, options_.batch);
}

Result<RoundFigures> run_round(BenchGround& ground, const StoreBenchOptions& options, const StoreBenchRow& row,
                               Nanos time, std::uint64_t seed) {
  return Round(ground, options, row, time, seed).run();
}

Result<void> check_content(BenchGround& ground, const StoreBenchRow& row) {
  const std::string& key = ground.read_set(row.bytes).keys.front();
  const std::span<std::byte> room = ground.room(0, row.bytes);
  std::memset(room.data(), 0, room.size());
  NMC_RETURN_IF_ERROR(expect("get_into", ground.client(row.carrier).read(key, room), static_cast<Outcome>(row.bytes)));
  const auto content = ground.content(row.bytes);
  if (std::equal(room.begin(), room.end(), content.begin())) return {};
  return corrupt("{}: not the bytes that were put, over {}", key, store_carrier_name(row.carrier));
}

}  // namespace nmc::lab
