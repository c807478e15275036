// `MooncakeDistributedStore` less its `setup`, which is Python's: the calls of the store's API on Python's objects.
//
// Methods are called with the interpreter lock, which guards the members, and give it up while the client works.
// Answers are those of store/codes.h. Before connect() and after close() each call answers kInvalidParams, or finds
// nothing.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "arguments.h"
#include "base/mutex.h"
#include "buffers.h"
#include "objects.h"
#include "session.h"
#include "staged_put.h"
#include "store/client.h"

namespace nmc::python {

using BytesList = nb::typed<nb::list, nb::bytes>;
using DescriptorsByKey = nb::typed<nb::dict, nb::str, DescriptorList>;
using MaybeHandle = nb::typed<nb::object, std::optional<BufferHandle>>;
using HandleList = nb::typed<nb::list, std::optional<BufferHandle>>;
using RangesAnswer = nb::typed<nb::list, nb::typed<nb::list, IntList>>;

class StoreObject {
 public:
  StoreObject() = default;
  StoreObject(const StoreObject&) = delete;
  StoreObject& operator=(const StoreObject&) = delete;

  // 0, also when it is connected already; or a code, with the reason in the log.
  // Without `takes_values` put(), put_parts() and put_batch() are refused, as callers know it of a client that set no
  // memory of its own apart.
  store::Outcome connect(store::ClientOptions options, bool takes_values);
  // Waits for the calls in flight. Always 0.
  store::Outcome close();

  // Bytes come from objects that export a buffer, or from addresses. `_pieces`: several addresses a key, joined.
  store::Outcome put(std::string_view key, const BufferObject& value, const Keep& keep);
  store::Outcome put_parts(std::string_view key, const nb::args& parts, const Keep& keep);
  // 0, or the first code that isn't.
  store::Outcome put_batch(const KeyList& keys, const BufferList& values, const Keep& keep);
  store::Outcome put_from(std::string_view key, std::uint64_t address, std::uint64_t size, const Keep& keep);
  IntList batch_put_from(const KeyList& keys, const NumberList& addresses, const NumberList& sizes, const Keep& keep);
  IntList batch_put_from_pieces(const KeyList& keys, const NumberLists& addresses, const NumberLists& sizes,
                                const Keep& keep);

  // Into new objects, into addresses, or into nothing: get_buffer gives the bytes where they lie.
  nb::bytes get(std::string_view key);
  BytesList get_batch(const KeyList& keys);
  MaybeHandle get_buffer(std::string_view key);
  HandleList batch_get_buffer(const KeyList& keys);
  store::Outcome get_into(std::string_view key, std::uint64_t address, std::uint64_t size);
  IntList batch_get_into(const KeyList& keys, const NumberList& addresses, const NumberList& sizes);
  IntList batch_get_into_pieces(const KeyList& keys, const NumberLists& addresses, const NumberLists& sizes);
  RangesAnswer get_into_ranges(const NumberList& addresses, const KeyLists& keys, const NumberListLists& to_offsets,
                               const NumberListLists& from_offsets, const NumberListLists& sizes);

  store::Outcome is_exist(std::string_view key);
  IntList batch_is_exist(const KeyList& keys);
  store::Outcome get_size(std::string_view key);
  store::Outcome remove(std::string_view key, bool force);
  IntList batch_remove(const KeyList& keys, bool force);
  store::Outcome remove_by_regex(const std::string& pattern, bool force);
  store::Outcome remove_all(bool force);
  DescriptorList replicas(std::string_view key);
  DescriptorsByKey batch_replicas(const KeyList& keys);

  // Gets and puts spread over several calls.
  IntList start_gets(const KeyList& keys);
  IntList read_gets(const KeyList& keys, const NumberLists& addresses, const NumberLists& sizes,
                    const NumberLists& from_offsets);
  store::Outcome end_gets(const KeyList& keys);
  IntList start_puts(const KeyList& keys, const NumberList& sizes, const Keep& keep);
  IntList write_puts(const KeyList& keys, const NumberLists& addresses, const NumberLists& sizes,
                     const NumberLists& to_offsets);
  IntList end_puts(const KeyList& keys);
  IntList revoke_puts(const KeyList& keys);

  store::Outcome register_buffer(std::uint64_t address, std::uint64_t size);
  store::Outcome unregister_buffer(std::uint64_t address);
  std::string hostname();
  int health_check();
  store::ClientCounters counters();

 private:
  class Call;  // store_call.h

  store::Outcome put_one(std::string_view key, std::span<const std::span<const std::byte>> parts, const Keep& keep);
  bool refuses_values();
  void put_all(std::span<const store::Client::Put> puts, const Keep& keep, std::span<store::Outcome> outcomes);
  // Bytes from an address to the end of the registered buffer that it lies in, or of all memory.
  std::uint64_t room_at(std::uint64_t address) const;
  std::vector<std::shared_ptr<StagedPut>> open_puts(const Keys& names) const;  // null where none is open

  // Held over set-up and close, one after another; never taken with the interpreter lock held.
  Mutex lifecycle_;
  std::shared_ptr<Session> session_;
  bool takes_values_ = true, told_ = false;
  std::map<std::uint64_t, std::uint64_t> registered_;                            // address, size
  std::map<std::string, std::shared_ptr<BufferHandle>, std::less<>> open_gets_;  // by key
  std::map<std::string, std::shared_ptr<StagedPut>, std::less<>> open_puts_;
};

void bind_store(nb::module_& module);
void bind_sessions(nb::class_<StoreObject>& store);  // of bind_store

}  // namespace nmc::python
