// The small types of the package: how to keep an object, and where it lies.
#pragma once

#include <nanobind/nanobind.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "store/client.h"

namespace nmc::python {

namespace nb = nanobind;

enum class ObjectDataType {
  kUnknown,
  kKvCache,
  kTensor,
  kWeight,
  kSample,
  kActivation,
  kGradient,
  kOptimizerState,
  kMetadata,
  kGeneral,
};

enum class SoftPinAction { kPreserve, kEnable, kDisable };

enum class ReplicaStatus { kUndefined, kInitialized, kProcessing, kComplete, kRemoved, kFailed };

// Field names and defaults are those that callers of Mooncake set.
struct ReplicateConfig {
  std::uint64_t replica_num = 1;
  std::uint64_t nof_replica_num = 0, dfs_replica_num = 0;
  SoftPinAction soft_pin_action = SoftPinAction::kPreserve;
  std::optional<std::uint64_t> soft_pin_ttl_ms;
  bool with_hard_pin = false;
  std::vector<std::string> preferred_segments, preferred_nof_segments;
  std::string preferred_segment;
  bool prefer_alloc_in_same_node = false;
  ObjectDataType data_type = ObjectDataType::kUnknown;
  std::optional<std::vector<std::string>> group_ids;

  std::string to_string() const;
};

// A put's options. `code` other than kOk: the store can't do what `config` asks, and that is the answer.
struct Keep {
  // For so many keys. `config` may be null: all defaults.
  Keep(const ReplicateConfig* config, bool replace, std::size_t keys = 1);
  store::StoreCode code = store::StoreCode::kOk;
  store::PutOptions options;
};

// One replica of an object: in somebody's memory, the only kind that clients see.
struct ReplicaDescriptor {
  store::ReplicaInfo replica;
};
using DescriptorList = nb::typed<nb::list, ReplicaDescriptor>;
DescriptorList to_descriptors(std::span<const store::ReplicaInfo> replicas);

void bind_objects(nb::module_& module);

}  // namespace nmc::python
