#include "store_object.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <iterator>
#include <optional>
#include <utility>

#include "base/log.h"
#include "interpreter_lock.h"
#include "store_call.h"

namespace nmc::python {
namespace {

using store::Client;
using store::Outcome;
using store::outcome_of;
using store::StoreCode;
using Part = std::span<const std::byte>;

constexpr Outcome kNotSetUp = outcome_of(StoreCode::kInvalidParams);
constexpr Outcome kMalformed = outcome_of(StoreCode::kInvalidParams);
std::vector<Outcome> outcomes_for(std::size_t count, Outcome outcome = kNotSetUp) {
  return std::vector<Outcome>(count, outcome);
}

// Fresh memory costs more than the copy into it while it comes in small pages. Asks for huge ones inside the bytes.
void prefer_huge_pages(std::span<char> bytes) {
  constexpr std::uintptr_t kHugePage = 2 << 20;
  const auto begin = (reinterpret_cast<std::uintptr_t>(bytes.data()) + kHugePage - 1) / kHugePage * kHugePage;
  const auto end = reinterpret_cast<std::uintptr_t>(bytes.data() + bytes.size()) / kHugePage * kHugePage;
  if (begin < end) static_cast<void>(madvise(reinterpret_cast<void*>(begin), end - begin, MADV_HUGEPAGE));
}

nb::bytes new_bytes(std::size_t size) {
  PyObject* bytes = PyBytes_FromStringAndSize(nullptr, static_cast<Py_ssize_t>(size));
  if (bytes == nullptr) nb::raise_python_error();
  if (size > kBytesWithLockMax) prefer_huge_pages({PyBytes_AS_STRING(bytes), size});
  return nb::steal<nb::bytes>(bytes);
}

// A copy of what is pinned in shared memory.
nb::bytes copy_of(const Client::View& view) {
  const Part source = view.bytes();
  nb::bytes copy = new_bytes(source.size());
  std::optional<Unlocked> unlocked;
  if (source.size() > kBytesWithLockMax) unlocked.emplace();
  std::memcpy(PyBytes_AS_STRING(copy.ptr()), source.data(), source.size());
  return copy;
}

nb::bytes no_bytes() { return nb::steal<nb::bytes>(PyBytes_FromStringAndSize(nullptr, 0)); }

// The memory that callers give for each key as a list of addresses and one of sizes. A key whose lists don't fit
// together, or name what can't be memory, has none.
template <typename Byte>
class Pieces {
 public:
  Pieces(nb::handle addresses, nb::handle sizes, std::size_t keys) : ends_{0} {
    const Items address_lists(addresses, "all_buffer_ptrs"), size_lists(sizes, "all_sizes");
    fits_ = address_lists.size() == keys && size_lists.size() == keys;
    for (std::size_t key = 0; fits_ && key < keys; ++key) {
      add(load_numbers(address_lists[key], "all_buffer_ptrs"), load_numbers(size_lists[key], "all_sizes"));
    }
  }
  // Whether there is a list for each key.
  bool fits() const { return fits_; }
  std::span<const std::span<Byte>> of(std::size_t key) const {
    return std::span(spans_).subspan(ends_[key], ends_[key + 1] - ends_[key]);
  }

 private:
  void add(std::span<const std::uint64_t> addresses, std::span<const std::uint64_t> sizes) {
    bool good = addresses.size() == sizes.size();
    for (std::size_t i = 0; good && i < addresses.size(); ++i) {
      spans_.push_back(memory_at(addresses[i], sizes[i]));
      good = spans_.back().size() == sizes[i];
    }
    if (!good) spans_.resize(ends_.back());
    ends_.push_back(spans_.size());
  }

  bool fits_ = false;
  std::vector<std::span<Byte>> spans_;
  std::vector<std::size_t> ends_;  // of each key's spans, behind a 0
};

// The ranges of one key in get_into_ranges, from lists of equal length; `good` says which can be memory at all.
struct KeyRanges {
  std::string_view key;
  std::vector<Client::Range> ranges;
  std::vector<bool> good;
  std::vector<Outcome> outcomes;

  // `room`: bytes that may be written from `address` on.
  KeyRanges(std::string_view name, std::uint64_t address, std::uint64_t room, std::span<const std::uint64_t> to,
            std::span<const std::uint64_t> from, std::span<const std::uint64_t> sizes)
      : key(name), outcomes(sizes.size(), kNotSetUp) {
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      const bool fits = address != 0 && to[i] <= room && sizes[i] <= room - to[i];
      ranges.push_back({from[i], fits ? memory_at(address + to[i], sizes[i]) : std::span<std::byte>()});
      good.push_back(fits && ranges.back().to.size() == sizes[i]);
    }
  }
  void read(Client& client) {
    client.read_ranges(key, ranges, outcomes);
    for (std::size_t i = 0; i < good.size(); ++i) {
      if (!good[i]) outcomes[i] = kMalformed;
    }
  }
};

}  // namespace

std::vector<nb::bytes> StoreObject::Call::receive(std::span<const std::string_view> keys) const {
  std::vector<nb::bytes> received(keys.size(), no_bytes());
  std::vector<Outcome> outcomes = outcomes_for(keys.size());
  const auto place = [&](std::size_t i, std::uint64_t bytes) -> Result<std::span<std::byte>> {
    const Locked locked;
    try {
      received[i] = new_bytes(bytes);
    } catch (nb::python_error&) {
      return resource_exhausted("no memory for an object of {} bytes", bytes);
    }
    return std::span(reinterpret_cast<std::byte*>(PyBytes_AS_STRING(received[i].ptr())), bytes);
  };
  run([&](Client& client) { client.fetch(keys, place, outcomes); });
  for (std::size_t i = 0; i < keys.size(); ++i) {
    if (outcomes[i] <= 0) received[i] = no_bytes();
  }
  return received;
}

// ---- Life ---------------------------------------------------------------------------------------------------------

Outcome StoreObject::connect(store::ClientOptions options, bool takes_values) {
  const Unlocked unlocked;
  const MutexLock lock(lifecycle_);
  {
    const Locked locked;
    if (session_ && session_->usable()) return outcome_of(StoreCode::kOk);
    session_.reset();
  }
  Result<std::unique_ptr<Client>> client = Client::connect(std::move(options));
  if (!client) {
    log_error("mooncake: setup: {}", client.error().message);
    const StoreCode code = store::store_code_for(client.error());
    // What isn't found here is a host or a socket, no object.
    return outcome_of(code == StoreCode::kObjectNotFound ? StoreCode::kRpcFail : code);
  }
  auto session = std::make_shared<Session>(std::move(*client));
  const Locked locked;
  session_ = std::move(session);
  takes_values_ = takes_values;
  return outcome_of(StoreCode::kOk);
}

Outcome StoreObject::close() {
  const Unlocked unlocked;
  const MutexLock lock(lifecycle_);
  std::shared_ptr<Session> session;
  {
    const Locked locked;
    session = std::move(session_);
    registered_.clear();
    open_gets_.clear();
    open_puts_.clear();
  }
  if (session && session->usable()) session->wait_idle();
  return outcome_of(StoreCode::kOk);
}

// ---- Putting ------------------------------------------------------------------------------------------------------

bool StoreObject::refuses_values() {
  if (takes_values_ || session_ == nullptr) return false;
  if (!std::exchange(told_, true))
    log_error(
        "mooncake: put: local_buffer_size was 0 at setup, so values aren't taken; give it a size, or use put_from");
  return true;
}

Outcome StoreObject::put_one(std::string_view key, std::span<const Part> parts, const Keep& keep) {
  const Client::Put put{key, parts};
  Outcome outcome = kNotSetUp;
  put_all({&put, 1}, keep, {&outcome, 1});
  return outcome;
}

void StoreObject::put_all(std::span<const Client::Put> puts, const Keep& keep, std::span<Outcome> outcomes) {
  const Call call(*this);
  if (!call) return;
  if (keep.code != StoreCode::kOk) {
    std::fill(outcomes.begin(), outcomes.end(), outcome_of(keep.code));
    return;
  }
  call.run([&](Client& client) { client.put(puts, keep.options, outcomes); });
}

Outcome StoreObject::put(std::string_view key, const BufferObject& value, const Keep& keep) {
  const Buffer buffer(value);
  const Part part = buffer.bytes();
  return refuses_values() ? kMalformed : put_one(key, {&part, 1}, keep);
}

Outcome StoreObject::put_parts(std::string_view key, const nb::args& parts, const Keep& keep) {
  std::deque<Buffer> buffers;
  std::vector<Part> spans;
  for (const nb::handle part : parts) spans.push_back(buffers.emplace_back(part).bytes());
  return refuses_values() ? kMalformed : put_one(key, spans, keep);
}

Outcome StoreObject::put_batch(const KeyList& keys, const BufferList& values, const Keep& keep) {
  const Keys names(keys);
  const Items objects(values, "values");
  if (objects.size() != names.size() || refuses_values()) return kMalformed;
  std::deque<Buffer> buffers;
  std::vector<Part> parts;
  for (std::size_t i = 0; i < names.size(); ++i) parts.push_back(buffers.emplace_back(objects[i]).bytes());
  std::vector<Client::Put> puts;
  for (std::size_t i = 0; i < names.size(); ++i) puts.push_back({names[i], {&parts[i], 1}});
  std::vector<Outcome> outcomes = outcomes_for(names.size());
  put_all(puts, keep, outcomes);
  const auto failed = std::find_if(outcomes.begin(), outcomes.end(), [](Outcome outcome) { return outcome != 0; });
  return failed == outcomes.end() ? outcome_of(StoreCode::kOk) : *failed;
}

Outcome StoreObject::put_from(std::string_view key, std::uint64_t address, std::uint64_t size, const Keep& keep) {
  const Part part = memory_at(address, size);
  return put_one(key, {&part, 1}, keep);
}

IntList StoreObject::batch_put_from(const KeyList& keys, const NumberList& addresses, const NumberList& sizes,
                                    const Keep& keep) {
  const Keys names(keys);
  const std::vector<std::uint64_t> starts = load_numbers(addresses, "buffer_ptrs"),
                                   lengths = load_numbers(sizes, "sizes");
  std::vector<Outcome> outcomes = outcomes_for(names.size());
  if (starts.size() == names.size() && lengths.size() == names.size()) {
    std::vector<Part> parts(names.size());
    std::vector<Client::Put> puts(names.size());
    for (std::size_t i = 0; i < names.size(); ++i) {
      parts[i] = memory_at(starts[i], lengths[i]);
      puts[i] = {names[i], {&parts[i], 1}};
    }
    put_all(puts, keep, outcomes);
  }
  return to_list(outcomes);
}

IntList StoreObject::batch_put_from_pieces(const KeyList& keys, const NumberLists& addresses, const NumberLists& sizes,
                                           const Keep& keep) {
  const Keys names(keys);
  const Pieces<const std::byte> pieces(addresses, sizes, names.size());
  std::vector<Outcome> outcomes = outcomes_for(names.size());
  if (pieces.fits()) {
    std::vector<Client::Put> puts;
    for (std::size_t i = 0; i < names.size(); ++i) puts.push_back({names[i], pieces.of(i)});
    put_all(puts, keep, outcomes);
  }
  return to_list(outcomes);
}

// ---- Getting ------------------------------------------------------------------------------------------------------

// What lies in shared memory is pinned and copied; what comes over the network is received into the new object.
nb::bytes StoreObject::get(std::string_view key) {
  const Call call(*this);
  if (!call) return no_bytes();
  if (call.reads_in_place()) {
    Client::View view;
    const Outcome outcome = call.view(key, view);
    return outcome == outcome_of(StoreCode::kOk) ? copy_of(view) : no_bytes();
  }
  return call.receive(std::span(&key, 1)).front();
}

BytesList StoreObject::get_batch(const KeyList& keys) {
  const Keys names(keys);
  BytesList list;
  if (const Call call(*this); call && !call.reads_in_place()) {
    for (const nb::bytes& value : call.receive(names.views())) list.append(value);
    return list;
  }
  for (const std::string_view key : names.views()) list.append(get(key));
  return list;
}

MaybeHandle StoreObject::get_buffer(std::string_view key) {
  const std::shared_ptr<Session> session = session_;
  const Call call(*this);
  if (!call) return nb::none();
  Client::View view;
  const Outcome outcome = call.view(key, view);
  if (outcome != outcome_of(StoreCode::kOk)) return nb::none();
  return nb::cast(new BufferHandle(session, std::move(view)), nb::rv_policy::take_ownership);
}

HandleList StoreObject::batch_get_buffer(const KeyList& keys) {
  const Keys names(keys);
  const std::shared_ptr<Session> session = session_;
  std::vector<Client::View> views(names.size());
  std::vector<Outcome> outcomes = outcomes_for(names.size());
  if (const Call call(*this); call) call.view(names.views(), views, outcomes);
  HandleList list;
  for (std::size_t i = 0; i < views.size(); ++i) {
    if (outcomes[i] == outcome_of(StoreCode::kOk)) {
      list.append(nb::cast(new BufferHandle(session, std::move(views[i])), nb::rv_policy::take_ownership));
    } else {
      list.append(nb::none());
    }
  }
  return list;
}

Outcome StoreObject::get_into(std::string_view key, std::uint64_t address, std::uint64_t size) {
  const Call call(*this);
  if (!call) return kNotSetUp;
  return call.read(1, size, [&](Client& client) { return client.read(key, memory_at(address, size)); });
}

IntList StoreObject::batch_get_into(const KeyList& keys, const NumberList& addresses, const NumberList& sizes) {
  const Keys names(keys);
  const std::vector<std::uint64_t> starts = load_numbers(addresses, "buffer_ptrs"),
                                   lengths = load_numbers(sizes, "sizes");
  std::vector<Outcome> outcomes = outcomes_for(names.size());
  const Call call(*this);
  if (call && starts.size() == names.size() && lengths.size() == names.size()) {
    std::vector<std::span<std::byte>> targets(names.size());
    std::vector<Client::Read> reads(names.size());
    std::uint64_t bytes = 0;
    for (std::size_t i = 0; i < names.size(); ++i) {
      targets[i] = memory_at(starts[i], lengths[i]);
      reads[i] = {names[i], {&targets[i], 1}};
      bytes += targets[i].size();
    }
    call.read(names.size(), bytes, [&](Client& client) { client.read(reads, outcomes); });
  }
  return to_list(outcomes);
}

IntList StoreObject::batch_get_into_pieces(const KeyList& keys, const NumberLists& addresses,
                                           const NumberLists& sizes) {
  const Keys names(keys);
  const Pieces<std::byte> pieces(addresses, sizes, names.size());
  std::vector<Outcome> outcomes = outcomes_for(names.size());
  const Call call(*this);
  if (call && pieces.fits()) {
    std::vector<Client::Read> reads;
    std::uint64_t bytes = 0;
    for (std::size_t i = 0; i < names.size(); ++i) {
      reads.push_back({names[i], pieces.of(i)});
      for (const std::span<std::byte> piece : reads.back().to) bytes += piece.size();
    }
    call.read(names.size(), bytes, [&](Client& client) { client.read(reads, outcomes); });
  }
  return to_list(outcomes);
}

// The answer has the shape of `sizes`: a list a buffer, in it a list a key, in it an outcome a range. What doesn't fit
// together at some level is answered with codes below that level.
RangesAnswer StoreObject::get_into_ranges(const NumberList& addresses, const KeyLists& keys,
                                          const NumberListLists& to_offsets, const NumberListLists& from_offsets,
                                          const NumberListLists& sizes) {
  const std::vector<std::uint64_t> starts = load_numbers(addresses, "buffer_ptrs");
  const Items key_lists(keys, "all_keys"), to_lists(to_offsets, "all_dst_offsets"),
      from_lists(from_offsets, "all_src_offsets"), size_lists(sizes, "all_sizes");
  const std::size_t buffers = size_lists.size();
  const bool fits = starts.size() == buffers && key_lists.size() == buffers && to_lists.size() == buffers &&
                    from_lists.size() == buffers;

  std::deque<Keys> names;                     // of each buffer
  std::vector<std::vector<KeyRanges>> asked;  // of each buffer and key
  for (std::size_t buffer = 0; buffer < buffers; ++buffer) {
    const Items size_list(size_lists[buffer], "all_sizes");
    std::vector<KeyRanges>& of_keys = asked.emplace_back();
    const std::size_t count = size_list.size();
    std::optional<Items> to, from;
    bool buffer_fits = fits;
    if (fits) {
      names.emplace_back(key_lists[buffer], "all_keys");
      to.emplace(to_lists[buffer], "all_dst_offsets");
      from.emplace(from_lists[buffer], "all_src_offsets");
      buffer_fits = names.back().size() == count && to->size() == count && from->size() == count;
    }
    for (std::size_t i = 0; i < count; ++i) {
      std::vector<std::uint64_t> lengths = load_numbers(size_list[i], "all_sizes"), to_numbers, from_numbers;
      if (buffer_fits) {
        to_numbers = load_numbers((*to)[i], "all_dst_offsets");
        from_numbers = load_numbers((*from)[i], "all_src_offsets");
      }
      const bool key_fits = to_numbers.size() == lengths.size() && from_numbers.size() == lengths.size();
      // As many answers as the longest of the lists asks for.
      const std::size_t ranges = std::max({lengths.size(), to_numbers.size(), from_numbers.size()});
      lengths.resize(ranges);
      to_numbers.resize(ranges);
      from_numbers.resize(ranges);
      // Without an address none of the ranges is good.
      const std::uint64_t start = key_fits && fits ? starts[buffer] : 0;
      of_keys.emplace_back(buffer_fits ? names.back()[i] : std::string_view(), start, room_at(start), to_numbers,
                           from_numbers, lengths);
    }
  }

  const Call call(*this);
  if (call) {
    call.run([&](Client& client) {
      for (std::vector<KeyRanges>& of_keys : asked) {
        for (KeyRanges& ranges : of_keys) ranges.read(client);
      }
    });
  }
  RangesAnswer answer;
  for (const std::vector<KeyRanges>& of_keys : asked) {
    nb::list of_buffer;
    for (const KeyRanges& ranges : of_keys) of_buffer.append(to_list(ranges.outcomes));
    answer.append(of_buffer);
  }
  return answer;
}

// ---- Keys ---------------------------------------------------------------------------------------------------------

Outcome StoreObject::is_exist(std::string_view key) {
  const Call call(*this);
  return call ? call.read(1, 0, [&](Client& client) { return client.exists(key); }) : kNotSetUp;
}

IntList StoreObject::batch_is_exist(const KeyList& keys) {
  const Keys names(keys);
  std::vector<Outcome> outcomes = outcomes_for(names.size());
  if (const Call call(*this); call) {
    call.read(names.size(), 0, [&](Client& client) { client.exists(names.views(), outcomes); });
  }
  return to_list(outcomes);
}

Outcome StoreObject::get_size(std::string_view key) {
  const Call call(*this);
  return call ? call.read(1, 0, [&](Client& client) { return client.size_of(key); }) : kNotSetUp;
}

Outcome StoreObject::remove(std::string_view key, bool force) {
  const Call call(*this);
  return call ? call.run([&](Client& client) { return client.remove(key, force); }) : kNotSetUp;
}

IntList StoreObject::batch_remove(const KeyList& keys, bool force) {
  const Keys names(keys);
  std::vector<Outcome> outcomes = outcomes_for(names.size());
  if (const Call call(*this); call) call.run([&](Client& client) { client.remove(names.views(), force, outcomes); });
  return to_list(outcomes);
}

Outcome StoreObject::remove_by_regex(const std::string& pattern, bool force) {
  const Call call(*this);
  return call ? call.run([&](Client& client) { return client.remove_matching(pattern, force); }) : kNotSetUp;
}

Outcome StoreObject::remove_all(bool force) {
  const Call call(*this);
  return call ? call.run([&](Client& client) { return client.remove_all(force); }) : kNotSetUp;
}

DescriptorList StoreObject::replicas(std::string_view key) {
  std::vector<store::ReplicaInfo> found;
  if (const Call call(*this); call) call.run([&](Client& client) { return client.replicas(key, found); });
  return to_descriptors(found);
}

DescriptorsByKey StoreObject::batch_replicas(const KeyList& keys) {
  const Keys names(keys);
  DescriptorsByKey by_key;
  for (std::size_t i = 0; i < names.size(); ++i) {
    const DescriptorList found = replicas(names[i]);
    if (found.size() != 0) by_key[nb::handle(names.object(i))] = found;
  }
  return by_key;
}

// ---- The rest -----------------------------------------------------------------------------------------------------

// Nothing has to be registered here, neither for shared memory nor for TCP. The book is kept because callers are told
// by it when they register twice or forget to.
Outcome StoreObject::register_buffer(std::uint64_t address, std::uint64_t size) {
  const Call call(*this);
  if (!call) return kNotSetUp;
  if (size == 0 || memory_at(address, size).empty()) return kMalformed;
  return registered_.emplace(address, size).second ? outcome_of(StoreCode::kOk) : kMalformed;
}

Outcome StoreObject::unregister_buffer(std::uint64_t address) {
  return registered_.erase(address) == 1 ? outcome_of(StoreCode::kOk) : kMalformed;
}

std::uint64_t StoreObject::room_at(std::uint64_t address) const {
  const auto behind = registered_.upper_bound(address);
  if (behind == registered_.begin()) return UINT64_MAX - address;
  const auto [start, bytes] = *std::prev(behind);
  return address - start < bytes ? bytes - (address - start) : UINT64_MAX - address;
}

std::string StoreObject::hostname() {
  const Call call(*this);
  return call ? call.run([](Client& client) { return client.name(); }) : std::string();
}

int StoreObject::health_check() {
  const Call call(*this);
  if (!call) return 1;
  return call.run([](Client& client) { return client.healthy(); }) ? 0 : 2;
}

store::ClientCounters StoreObject::counters() {
  const Call call(*this);
  return call ? call.run([](Client& client) { return client.counters(); }) : store::ClientCounters();
}

}  // namespace nmc::python
