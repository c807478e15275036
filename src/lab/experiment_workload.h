// Workloads of the experiments: their definitions (docs/workload_bundles.json) and the requests made of them. One seed
// gives the same requests everywhere.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "engine/request.h"

namespace nmc::lab {

struct WorkloadSpec {
  std::string name, about;
  std::size_t requests = 1;
  std::size_t groups = 1;         // request i is of group i modulo groups
  std::size_t prefix_tokens = 0;  // that all of a group begin with
  std::size_t suffix_tokens = 0;  // that a request has for itself; 0: all of a group are equal
  std::size_t output_tokens = 1;
  std::size_t concurrency = 1;  // asked at once
  std::size_t max_queue = 0;    // not 0: all come at once while the workers are busy, and only so many may wait
};

// Schema nano-mooncake/workloads/v1. kInvalidArgument names the member that isn't as it should be; `name` is for that.
Result<std::vector<WorkloadSpec>> parse_workloads(std::string_view text, std::string_view name);
// The text of docs/workload_bundles.json, from when this was built.
std::string_view built_in_workloads();

struct WorkloadRequest {
  std::string id;  // "r0", "r1", ...
  std::vector<engine::TokenId> prompt;
  std::size_t output_tokens = 1;
};

struct Workload {
  WorkloadSpec spec;
  // Requests of one wave are asked at once, a wave when the one before is over. The first request of each group that
  // has a prefix is a wave of its own, so that what the others find in a cache doesn't depend on who came first.
  std::vector<std::vector<WorkloadRequest>> waves;
  std::string digest;  // SHA-256 over all of that

  std::size_t tokens() const;  // of prompts and answers
};

// Ids are below `vocab`. Answers are `max_new_tokens` long at most.
Workload make_workload(const WorkloadSpec& spec, std::uint64_t seed, std::uint32_t vocab,
                       std::optional<std::size_t> max_new_tokens);

// A prompt that no workload of that seed has; `number` tells several apart.
std::vector<engine::TokenId> other_prompt(std::uint64_t seed, std::uint64_t number, std::size_t tokens,
                                          std::uint32_t vocab);

}  // namespace nmc::lab
