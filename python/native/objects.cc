#include "objects.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

namespace nmc::python {
namespace {

using store::ReplicaInfo;

constexpr const char* kDataTypeNames[] = {"UNKNOWN",    "KVCACHE",  "TENSOR",          "WEIGHT",   "SAMPLE",
                                          "ACTIVATION", "GRADIENT", "OPTIMIZER_STATE", "METADATA", "GENERAL"};
constexpr const char* kSoftPinActionNames[] = {"PRESERVE", "ENABLE", "DISABLE"};
constexpr const char* kReplicaStatusNames[] = {"UNDEFINED", "INITIALIZED", "PROCESSING",
                                               "COMPLETE",  "REMOVED",     "FAILED"};

struct MemoryDescriptor {
  ReplicaInfo replica;
};

template <typename Enum, std::size_t count>
nb::enum_<Enum> bind_enum(nb::module_& module, const char* name, const char* const (&names)[count], const char* doc) {
  nb::enum_<Enum> bound(module, name, nb::is_arithmetic(), doc);
  for (std::size_t i = 0; i < count; ++i) bound.value(names[i], static_cast<Enum>(i));
  return bound;
}

void bind_enums(nb::module_& module) {
  bind_enum<ObjectDataType>(module, "ObjectDataType", kDataTypeNames,
                            "What an object holds. The store treats all alike.")
      .export_values();
  bind_enum<SoftPinAction>(module, "SoftPinAction", kSoftPinActionNames,
                           "ENABLE: the object is evicted after those that have no soft pin, for `soft_pin_ttl_ms` "
                           "from its put on. PRESERVE: an upsert keeps what is left of that. DISABLE: it ends.");
  bind_enum<ReplicaStatus>(module, "ReplicaStatus", kReplicaStatusNames, "State of one replica of an object.")
      .export_values();
}

void bind_config(nb::module_& module) {
  nb::class_<ReplicateConfig>(
      module, "ReplicateConfig",
      "How an object is to be kept. `replica_num` replicas lie on as many segments, or on fewer "
      "where there are fewer; `preferred_segment` and `preferred_segments` are tried first.")
      .def(nb::init<>())
      .def_rw("replica_num", &ReplicateConfig::replica_num)
      .def_rw("nof_replica_num", &ReplicateConfig::nof_replica_num)
      .def_rw("dfs_replica_num", &ReplicateConfig::dfs_replica_num)
      .def_rw("soft_pin_action", &ReplicateConfig::soft_pin_action)
      .def_rw("soft_pin_ttl_ms", &ReplicateConfig::soft_pin_ttl_ms, nb::arg().none())
      .def_rw("with_hard_pin", &ReplicateConfig::with_hard_pin)
      .def_rw("preferred_segments", &ReplicateConfig::preferred_segments)
      .def_rw("preferred_nof_segments", &ReplicateConfig::preferred_nof_segments)
      .def_rw("preferred_segment", &ReplicateConfig::preferred_segment)
      .def_rw("prefer_alloc_in_same_node", &ReplicateConfig::prefer_alloc_in_same_node)
      .def_rw("data_type", &ReplicateConfig::data_type)
      .def_rw("group_ids", &ReplicateConfig::group_ids, nb::arg().none())
      .def("__str__", &ReplicateConfig::to_string)
      .def("__repr__", &ReplicateConfig::to_string);
}

void bind_descriptors(nb::module_& module) {
  nb::class_<ReplicaInfo>(module, "Descriptor", "Where the bytes of a replica in memory lie.")
      .def(nb::init<>())
      .def_rw("size", &ReplicaInfo::bytes, "Number of bytes.")
      .def_rw("buffer_address", &ReplicaInfo::offset, "Offset in the segment.")
      .def_rw("transport_endpoint", &ReplicaInfo::segment, "Name of the segment, as `preferred_segment` takes it.")
      .def("__repr__", [](const ReplicaInfo& self) {
        return fmt::format("Descriptor(size={}, buffer_address={}, transport_endpoint='{}')", self.bytes, self.offset,
                           self.segment);
      });
  nb::class_<MemoryDescriptor>(module, "MemoryDescriptor").def_rw("buffer_descriptor", &MemoryDescriptor::replica);
  nb::class_<ReplicaDescriptor>(module, "ReplicaDescriptor", "One replica of an object.")
      .def_prop_ro("status", [](const ReplicaDescriptor&) { return ReplicaStatus::kComplete; })
      .def("is_memory_replica", [](const ReplicaDescriptor&) { return true; })
      .def("is_disk_replica", [](const ReplicaDescriptor&) { return false; })
      .def("is_local_disk_replica", [](const ReplicaDescriptor&) { return false; })
      .def("get_memory_descriptor", [](const ReplicaDescriptor& self) { return MemoryDescriptor{self.replica}; })
      .def("__repr__", [](const ReplicaDescriptor& self) {
        return fmt::format("ReplicaDescriptor({} bytes in memory at {} + {})", self.replica.bytes, self.replica.segment,
                           self.replica.offset);
      });
}

}  // namespace

std::string ReplicateConfig::to_string() const {
  const std::string ttl = soft_pin_ttl_ms ? fmt::format("{}", *soft_pin_ttl_ms) : "none";
  const std::string groups = group_ids ? fmt::format("[{}]", fmt::join(*group_ids, ", ")) : "none";
  return fmt::format(
      "ReplicateConfig: {{ replica_num: {}, nof_replica_num: {}, dfs_replica_num: {}, soft_pin_action: {}, "
      "soft_pin_ttl_ms: {}, with_hard_pin: {}, preferred_segments: [{}], preferred_nof_segments: [{}], "
      "preferred_segment: {}, prefer_alloc_in_same_node: {}, data_type: {}, group_ids: {} }}",
      replica_num, nof_replica_num, dfs_replica_num, kSoftPinActionNames[static_cast<int>(soft_pin_action)], ttl,
      with_hard_pin, fmt::join(preferred_segments, ", "), fmt::join(preferred_nof_segments, ", "), preferred_segment,
      prefer_alloc_in_same_node, kDataTypeNames[static_cast<int>(data_type)], groups);
}

Keep::Keep(const ReplicateConfig* config, bool replace, std::size_t keys) : options{.replace = replace} {
  if (config == nullptr) return;
  constexpr store::SoftPin kActions[] = {store::SoftPin::kKeep, store::SoftPin::kPin, store::SoftPin::kDrop};
  options.soft_pin = kActions[static_cast<int>(config->soft_pin_action)];
  const bool groups_fit = !config->group_ids || config->group_ids->size() == keys;
  if (config->nof_replica_num != 0 || config->dfs_replica_num != 0) {
    code = store::StoreCode::kNotSupported;
  } else if (config->replica_num == 0 || config->replica_num > UINT32_MAX || !groups_fit ||
             (config->soft_pin_ttl_ms && options.soft_pin != store::SoftPin::kPin)) {
    code = store::StoreCode::kInvalidParams;
  }
  options.replicas = static_cast<std::uint32_t>(config->replica_num);
  if (!config->preferred_segment.empty()) options.preferred_segments.push_back(config->preferred_segment);
  options.preferred_segments.insert(options.preferred_segments.end(), config->preferred_segments.begin(),
                                    config->preferred_segments.end());
  options.soft_pin_ms = config->soft_pin_ttl_ms;
  options.hard_pin = config->with_hard_pin;
}

DescriptorList to_descriptors(std::span<const ReplicaInfo> replicas) {
  DescriptorList list;
  for (const ReplicaInfo& replica : replicas) list.append(nb::cast(ReplicaDescriptor{replica}));
  return list;
}

void bind_objects(nb::module_& module) {
  bind_enums(module);
  bind_config(module);
  bind_descriptors(module);
}

}  // namespace nmc::python
