#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <string>
#include <utility>

#include "arguments.h"
#include "objects.h"
#include "store_object.h"

namespace nmc::python {
namespace {

using namespace nb::literals;  // "name"_a is how nanobind names arguments

using Self = StoreObject&;
using Config = const ReplicateConfig*;  // null: defaults
using StoreClass = nb::class_<StoreObject>;

nb::dict to_dict(const store::ClientCounters::Carrier& carrier) {
  nb::dict dict;
  dict["messages"] = carrier.messages;
  dict["bytes_sent"] = carrier.bytes_sent;
  dict["bytes_received"] = carrier.bytes_received;
  return dict;
}

nb::dict to_dict(const store::ClientCounters& counters) {
  nb::dict dict;
  dict["shared_reads"] = counters.shared_reads;
  dict["shared_read_bytes"] = counters.shared_read_bytes;
  dict["shared_writes"] = counters.shared_writes;
  dict["shared_write_bytes"] = counters.shared_write_bytes;
  dict["unix"] = to_dict(counters.unix_socket);
  dict["tcp"] = to_dict(counters.tcp);
  return dict;
}

void bind_life(StoreClass& store) {
  store
      .def(
          "_connect",
          [](Self self, std::string server, std::string hostname, std::uint64_t segment_bytes, std::string token,
             std::string tls_ca, bool takes_values, bool shared_memory) {
            store::ClientOptions options;
            options.server = std::move(server);
            options.hostname = std::move(hostname);
            options.segment_bytes = segment_bytes;
            options.token = std::move(token);
            options.tls_ca = std::move(tls_ca);
            options.shared_memory = shared_memory;
            return self.connect(std::move(options), takes_values);
          },
          "server"_a, "hostname"_a, "segment_bytes"_a, "token"_a, "tls_ca"_a, "takes_values"_a, "shared_memory"_a,
          "0, also when connected already; or a code, with the reason on standard error.")
      .def("close", &StoreObject::close,
           "Waits for calls in flight and gives this client's segment back. Always 0, and harmless a second time. "
           "Buffers that were handed out stay valid; the segment then stays until they go.")
      .def("get_hostname", &StoreObject::hostname,
           "\"host:port\", by which ReplicateConfig.preferred_segment prefers this client's segment.")
      .def("health_check", &StoreObject::health_check,
           "0: healthy; 1: not set up, or closed; 2: the master doesn't answer.")
      .def(
          "counters", [](Self self) { return nb::typed<nb::dict, nb::str, nb::object>(to_dict(self.counters())); },
          "Which way this client's bytes went since setup: reads and writes through shared memory, and for each "
          "carrier, "
          "\"unix\" and \"tcp\", its messages and payload bytes.")
      .def("register_buffer", &StoreObject::register_buffer, "buffer_ptr"_a, "size"_a,
           "0, or -600 for an address that is registered already. Calls take any memory, registered or not.")
      .def("unregister_buffer", &StoreObject::unregister_buffer, "buffer_ptr"_a,
           "0, or -600 for an address that isn't registered.");
}

// Each way to put a value exists twice: once keeping what a key has, once replacing it.
struct PutNames {
  const char *one, *parts, *batch, *from, *batch_from;
  const char* taken;  // what becomes of a key that has a value
};

void bind_put(StoreClass& store, bool replace, const PutNames& names) {
  const auto config = "config"_a.none() = nb::none();
  const auto doc = [&](const char* what) { return std::string(what) + " " + names.taken; };
  const std::string parts_signature = std::string("def ") + names.parts +
                                      "(self, key: str, *parts: typing_extensions.Buffer, "
                                      "config: ReplicateConfig | None = None) -> int";
  store
      .def(
          names.one,
          [replace](Self self, Key key, const BufferObject& value, Config keep) {
            return self.put(key.text, value, {keep, replace});
          },
          "key"_a, "value"_a, config,
          doc("Stores a copy of any contiguous buffer. 0, -200 when there is no room, -600 for no key or no bytes.")
              .c_str())
      .def(
          names.parts,
          [replace](Self self, Key key, const nb::args& parts, Config keep) {
            return self.put_parts(key.text, parts, {keep, replace});
          },
          "key"_a, "parts"_a, config, nb::sig(parts_signature.c_str()),
          doc("Stores the parts, joined, as one object.").c_str())
      .def(
          names.batch,
          [replace](Self self, const KeyList& keys, const BufferList& values, Config keep) {
            return self.put_batch(keys, values, {keep, replace, nb::len(keys)});
          },
          "keys"_a, "values"_a, config,
          doc("Stores a value for each key, and answers once for all: 0, or the first code.").c_str())
      .def(
          names.from,
          [replace](Self self, Key key, std::uint64_t address, std::uint64_t size, Config keep) {
            return self.put_from(key.text, address, size, {keep, replace});
          },
          "key"_a, "buffer_ptr"_a, "size"_a, config, doc("Stores a copy of the bytes at an address.").c_str())
      .def(
          names.batch_from,
          [replace](Self self, const KeyList& keys, const NumberList& addresses, const NumberList& sizes, Config keep) {
            return self.batch_put_from(keys, addresses, sizes, {keep, replace, nb::len(keys)});
          },
          "keys"_a, "buffer_ptrs"_a, "sizes"_a, config,
          doc("Stores a copy of the bytes at an address for each key; an answer each.").c_str());
}

void bind_puts(StoreClass& store) {
  bind_put(store, false,
           {"put", "put_parts", "put_batch", "put_from", "batch_put_from",
            "A key that has a value keeps it; that is 0 too."});
  bind_put(store, true,
           {"upsert", "upsert_parts", "upsert_batch", "upsert_from", "batch_upsert_from",
            "A key that has a value gets this one instead."});
  store.def(
      "batch_put_from_multi_buffers",
      [](Self self, const KeyList& keys, const NumberLists& addresses, const NumberLists& sizes, Config keep) {
        return self.batch_put_from_pieces(keys, addresses, sizes, {keep, false, nb::len(keys)});
      },
      "keys"_a, "all_buffer_ptrs"_a, "all_sizes"_a, "config"_a.none() = nb::none(),
      "Stores the bytes at several addresses, joined, for each key; an answer each. A key that has a value keeps it; "
      "that "
      "is 0 too.");
}

void bind_gets(StoreClass& store) {
  store
      .def(
          "get", [](Self self, Key key) { return self.get(key.text); }, "key"_a,
          "The object's bytes; b\"\" for a miss.")
      .def("get_batch", &StoreObject::get_batch, "keys"_a, "The bytes of each object; b\"\" for a miss.")
      .def(
          "get_buffer", [](Self self, Key key) { return self.get_buffer(key.text); }, "key"_a,
          "The object's bytes where they lie; None for a miss.")
      .def("batch_get_buffer", &StoreObject::batch_get_buffer, "keys"_a,
           "The bytes of each object where they lie; None for a miss.")
      .def(
          "get_into",
          [](Self self, Key key, std::uint64_t address, std::uint64_t size) {
            return self.get_into(key.text, address, size);
          },
          "key"_a, "buffer_ptr"_a, "size"_a,
          "Copies the object to an address and returns its size; -704 for a miss, -600 when it is larger than `size`, "
          "which then is untouched.")
      .def("batch_get_into", &StoreObject::batch_get_into, "keys"_a, "buffer_ptrs"_a, "sizes"_a,
           "get_into for each key; an answer each.")
      .def(
          "batch_get_into_multi_buffers",
          [](Self self, const KeyList& keys, const NumberLists& addresses, const NumberLists& sizes, bool) {
            return self.batch_get_into_pieces(keys, addresses, sizes);
          },
          "keys"_a, "all_buffer_ptrs"_a, "all_sizes"_a, "prefer_alloc_in_same_node"_a = false,
          "Copies each object to several addresses, one filled after the other; an answer each, as of get_into.")
      .def("get_into_ranges", &StoreObject::get_into_ranges, "buffer_ptrs"_a, "all_keys"_a, "all_dst_offsets"_a,
           "all_src_offsets"_a, "all_sizes"_a,
           "Copies ranges of objects into buffers: for each buffer its keys, for each of those its ranges. Answers, in "
           "the shape of `all_sizes`, the size of each range or a code.");
}

void bind_keys(StoreClass& store) {
  store
      .def(
          "is_exist", [](Self self, Key key) { return self.is_exist(key.text); }, "key"_a,
          "1, 0 or a code. A key that is there has been used: it is evicted later.")
      .def("batch_is_exist", &StoreObject::batch_is_exist, "keys"_a, "is_exist for each key.")
      .def(
          "get_size", [](Self self, Key key) { return self.get_size(key.text); }, "key"_a,
          "The object's size in bytes; -704 for a miss.")
      .def(
          "remove", [](Self self, Key key, bool force) { return self.remove(key.text, force); }, "key"_a,
          "force"_a = false, "0; -704 for a miss; -706 for an object that was used lately, unless `force` is set.")
      .def("batch_remove", &StoreObject::batch_remove, "keys"_a, "force"_a = false,
           "remove for each key; an answer each.")
      .def("remove_by_regex", &StoreObject::remove_by_regex, "regex_pattern"_a, "force"_a = false,
           "Removes the keys in which the pattern (ECMAScript) is found, and returns how many; -600 when it is none.")
      .def("remove_all", &StoreObject::remove_all, "force"_a = false,
           "Removes all objects that weren't used lately, or with `force` all, and returns how many.")
      .def(
          "get_replica_desc", [](Self self, Key key) { return self.replicas(key.text); }, "key"_a,
          "Where the object lies; [] for a miss.")
      .def("batch_get_replica_desc", &StoreObject::batch_replicas, "keys"_a,
           "Where each object lies, by key; keys that miss are left out.");
}

}  // namespace

void bind_store(nb::module_& module) {
  StoreClass store(module, "Store", nb::is_weak_referenceable(),
                   "A client of the node's store, less its setup. Thread-safe; calls give up the interpreter lock.");
  store.def(nb::init<>());
  bind_life(store);
  bind_puts(store);
  bind_gets(store);
  bind_keys(store);
  bind_sessions(store);
}

}  // namespace nmc::python
