// What `nano-mooncake slo` writes down. What a host or server can't tell is {"not_available": why}.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "base/json.h"
#include "lab/slo.h"

namespace nmc::lab {

// What the command line knows and a measurement doesn't; "": it wasn't said.
struct SloLabels {
  std::string url, server_version, tensor_parallel, pipeline_parallel, kv_dtype, kv_layout, note;
  Json server_provenance = nullptr;  // what the server says of itself in /v1/metrics; null: nothing
};

// Schema nano-mooncake/slo/v1.
Json slo_json(const SloOptions& options, const SloLabels& labels, const SloResult& result);

// "p50": {"ms", "low_ms", "high_ms"} or not available with the number of samples it needs.
Json percentiles_json(const evidence::Percentiles& percentiles);

// Each request of each run as a line of JSON; runs have to have kept them.
std::string request_lines(const SloOptions& options, const SloResult& result);

// Whether it was found and what that means, in a sentence.
std::string knee_sentence(const SloOptions& options, const SloResult& result);

}  // namespace nmc::lab
