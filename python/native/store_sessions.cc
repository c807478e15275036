// Gets and puts that callers spread over several calls, layer by layer: batch_get_session_* and batch_put_session_*.
//
// An open get pins its object, so its bytes stay whatever becomes of the key. An open put is memory of this process
// that is stored when it ends.
#include <nanobind/nanobind.h>

#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "staged_put.h"
#include "store_call.h"
#include "store_object.h"

namespace nmc::python {
namespace {

using store::Client;
using store::Outcome;
using store::outcome_of;
using store::StoreCode;

constexpr Outcome kRefused = outcome_of(StoreCode::kInvalidParams);

// The pieces that one key's lists name: memory, and where in the object it belongs.
struct Piece {
  std::uint64_t offset = 0;
  std::span<std::byte> memory;
};

// Of each key its pieces, or none where its lists don't fit together or name what can't be memory.
using PieceLists = std::vector<std::optional<std::vector<Piece>>>;

std::optional<std::vector<Piece>> pieces_of(nb::handle addresses, nb::handle sizes, nb::handle offsets,
                                            const char* offsets_name) {
  const std::vector<std::uint64_t> starts = load_numbers(addresses, "all_buffer_ptrs"),
                                   lengths = load_numbers(sizes, "all_sizes"),
                                   places = load_numbers(offsets, offsets_name);
  if (starts.size() != lengths.size() || starts.size() != places.size()) return std::nullopt;
  std::vector<Piece> pieces;
  for (std::size_t i = 0; i < starts.size(); ++i) {
    pieces.push_back({places[i], memory_at(starts[i], lengths[i])});
    if (pieces.back().memory.size() != lengths[i]) return std::nullopt;
  }
  return pieces;
}

PieceLists load_pieces(std::size_t keys, nb::handle addresses, nb::handle sizes, nb::handle offsets,
                       const char* offsets_name) {
  const Items address_lists(addresses, "all_buffer_ptrs"), size_lists(sizes, "all_sizes"),
      offset_lists(offsets, offsets_name);
  PieceLists lists(keys);
  if (address_lists.size() != keys || size_lists.size() != keys || offset_lists.size() != keys) return lists;
  for (std::size_t i = 0; i < keys; ++i) {
    lists[i] = pieces_of(address_lists[i], size_lists[i], offset_lists[i], offsets_name);
  }
  return lists;
}

// Copies pieces of an object out. Nothing is written unless all of them lie within it.
Outcome copy_pieces(std::span<const std::byte> object, std::span<const Piece> pieces) {
  Outcome bytes = 0;
  for (const Piece& piece : pieces) {
    if (piece.offset > object.size() || piece.memory.size() > object.size() - piece.offset) return kRefused;
    bytes += static_cast<Outcome>(piece.memory.size());
  }
  for (const Piece& piece : pieces) {
    std::memcpy(piece.memory.data(), object.data() + piece.offset, piece.memory.size());
  }
  return bytes;
}

}  // namespace

// ---- Gets ---------------------------------------------------------------------------------------------------------

IntList StoreObject::start_gets(const KeyList& keys) {
  const Keys names(keys);
  std::vector<Outcome> outcomes(names.size(), kRefused);
  const std::shared_ptr<Session> session = session_;
  const Call call(*this);
  if (!call) return to_list(outcomes);
  std::vector<Client::View> views(names.size());
  call.view(names.views(), views, outcomes);
  // close() has ended the gets that were open, and mustn't be given another.
  if (session_ != session) return to_list(std::vector<Outcome>(names.size(), kRefused));
  for (std::size_t i = 0; i < names.size(); ++i) {
    const std::string key(names[i]);
    open_gets_.erase(key);
    if (outcomes[i] != outcome_of(StoreCode::kOk)) continue;
    open_gets_.emplace(key, std::make_shared<BufferHandle>(session, std::move(views[i])));
  }
  return to_list(outcomes);
}

IntList StoreObject::read_gets(const KeyList& keys, const NumberLists& addresses, const NumberLists& sizes,
                               const NumberLists& from_offsets) {
  const Keys names(keys);
  const PieceLists pieces = load_pieces(names.size(), addresses, sizes, from_offsets, "all_src_offsets");
  std::vector<Outcome> outcomes(names.size(), kRefused);
  std::vector<std::shared_ptr<BufferHandle>> objects(names.size());
  for (std::size_t i = 0; i < names.size(); ++i) {
    const auto open = open_gets_.find(names[i]);
    if (open != open_gets_.end()) objects[i] = open->second;
  }
  const Call call(*this);
  if (!call) return to_list(outcomes);
  call.run([&](Client&) {
    for (std::size_t i = 0; i < names.size(); ++i) {
      if (objects[i] && pieces[i]) outcomes[i] = copy_pieces(objects[i]->bytes(), *pieces[i]);
    }
  });
  return to_list(outcomes);
}

Outcome StoreObject::end_gets(const KeyList& keys) {
  const Keys names(keys);
  for (const std::string_view key : names.views()) {
    if (const auto open = open_gets_.find(key); open != open_gets_.end()) open_gets_.erase(open);
  }
  return session_ && session_->usable() ? outcome_of(StoreCode::kOk) : kRefused;
}

// ---- Puts ---------------------------------------------------------------------------------------------------------

IntList StoreObject::start_puts(const KeyList& keys, const NumberList& sizes, const Keep& keep) {
  const Keys names(keys);
  const std::vector<std::uint64_t> lengths = load_numbers(sizes, "sizes");
  std::vector<Outcome> outcomes(names.size(), kRefused);
  const std::shared_ptr<Session> session = session_;
  const Call call(*this);
  if (!call || lengths.size() != names.size()) return to_list(outcomes);
  if (keep.code != StoreCode::kOk) return to_list(std::vector<Outcome>(names.size(), outcome_of(keep.code)));
  std::vector<Outcome> taken(names.size(), 0);
  call.run([&](Client& client) { client.exists(names.views(), taken); });
  if (session_ != session) return to_list(outcomes);
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (taken[i] != 0) {
      outcomes[i] = taken[i] == 1 ? outcome_of(StoreCode::kObjectAlreadyExists) : taken[i];
    } else if (!names[i].empty() && lengths[i] != 0 && !open_puts_.contains(names[i])) {
      Result<std::shared_ptr<StagedPut>> put = StagedPut::create(lengths[i], keep);
      outcomes[i] = outcome_of(put ? StoreCode::kOk : StoreCode::kNoAvailableHandle);
      if (put) open_puts_.emplace(names[i], std::move(*put));
    }
  }
  return to_list(outcomes);
}

std::vector<std::shared_ptr<StagedPut>> StoreObject::open_puts(const Keys& names) const {
  std::vector<std::shared_ptr<StagedPut>> puts(names.size());
  for (std::size_t i = 0; i < names.size(); ++i) {
    const auto open = open_puts_.find(names[i]);
    if (open != open_puts_.end()) puts[i] = open->second;
  }
  return puts;
}

IntList StoreObject::write_puts(const KeyList& keys, const NumberLists& addresses, const NumberLists& sizes,
                                const NumberLists& to_offsets) {
  const Keys names(keys);
  const PieceLists pieces = load_pieces(names.size(), addresses, sizes, to_offsets, "all_dst_offsets");
  std::vector<Outcome> outcomes(names.size(), kRefused);
  const std::vector<std::shared_ptr<StagedPut>> puts = open_puts(names);
  const Call call(*this);
  if (!call) return to_list(outcomes);
  call.run([&](Client&) {
    std::vector<StagedPut::Range> ranges;
    for (std::size_t i = 0; i < names.size(); ++i) {
      if (!puts[i] || !pieces[i]) continue;
      ranges.clear();
      for (const Piece& piece : *pieces[i]) ranges.push_back({piece.offset, piece.memory});
      outcomes[i] = puts[i]->write(ranges);
    }
  });
  return to_list(outcomes);
}

IntList StoreObject::end_puts(const KeyList& keys) {
  const Keys names(keys);
  std::vector<Outcome> outcomes(names.size(), kRefused);
  const std::vector<std::shared_ptr<StagedPut>> puts = open_puts(names);
  const Call call(*this);
  if (!call) return to_list(outcomes);
  call.run([&](Client& client) {
    for (std::size_t i = 0; i < names.size(); ++i) {
      if (puts[i]) outcomes[i] = puts[i]->commit(client, names[i]);
    }
  });
  for (std::size_t i = 0; i < names.size(); ++i) {
    const auto open = open_puts_.find(names[i]);
    const bool done = outcomes[i] == outcome_of(StoreCode::kOk);
    if (done && open != open_puts_.end() && open->second == puts[i]) open_puts_.erase(open);
  }
  return to_list(outcomes);
}

IntList StoreObject::revoke_puts(const KeyList& keys) {
  const Keys names(keys);
  std::vector<Outcome> outcomes(names.size(), kRefused);
  const Call call(*this);
  if (!call) return to_list(outcomes);
  for (std::size_t i = 0; i < names.size(); ++i) {
    const auto open = open_puts_.find(names[i]);
    if (open == open_puts_.end()) continue;
    open_puts_.erase(open);
    outcomes[i] = outcome_of(StoreCode::kOk);
  }
  return to_list(outcomes);
}

// ---- Binding ------------------------------------------------------------------------------------------------------

void bind_sessions(nb::class_<StoreObject>& store) {
  using namespace nb::literals;  // "name"_a is how nanobind names arguments
  store
      .def("batch_get_session_start", &StoreObject::start_gets, "keys"_a,
           "Begins a get of each object that takes several calls; 0, or -704 for a miss. Its bytes stay as they are "
           "until "
           "the end, whatever becomes of the key, so end it. A second start of a key is a new one.")
      .def("batch_get_into_multi_buffer_ranges", &StoreObject::read_gets, "keys"_a, "all_buffer_ptrs"_a, "all_sizes"_a,
           "all_src_offsets"_a,
           "Copies ranges of each object whose get is open to addresses; the sum of its sizes, or -600 when the get "
           "isn't "
           "open or a range lies beyond the object's end.")
      .def("batch_get_session_end", &StoreObject::end_gets, "keys"_a, "Ends gets. 0, also for those that aren't open.")
      .def(
          "batch_put_session_start",
          [](StoreObject& self, const KeyList& keys, const NumberList& sizes, const ReplicateConfig* config) {
            return self.start_puts(keys, sizes, {config, false, nb::len(keys)});
          },
          "keys"_a, "sizes"_a, "config"_a.none() = nb::none(),
          "Begins a put of each key that takes several calls; 0, -705 when the key has a value, -600 when its put is "
          "open "
          "already. The bytes are kept in this process until the end, which stores them.")
      .def("batch_put_from_multi_buffer_ranges", &StoreObject::write_puts, "keys"_a, "all_buffer_ptrs"_a, "all_sizes"_a,
           "all_dst_offsets"_a,
           "Copies bytes at addresses to places of each object whose put is open; the sum of its sizes, or -600 when "
           "the "
           "put isn't open or a place lies beyond its end.")
      .def(
          "batch_put_session_end", &StoreObject::end_puts, "keys"_a,
          "Stores each object whose put is open; 0, or a code as of put, after which the put is still open. Bytes that "
          "were never written are 0. A key that has a value by now keeps it; that is 0 too.")
      .def("batch_put_session_revoke", &StoreObject::revoke_puts, "keys"_a,
           "Gives up each put; 0, or -600 when it isn't open.");
}

}  // namespace nmc::python
