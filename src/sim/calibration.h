// Service models taken from what this product measured: reports of bench-engine and store-bench as JSON.
//
//   bench-engine   prefill: b and c of b x tokens + c x tokens^2, by least squares of the relative errors over the
//   prompt
//                  lengths of its smallest batch; the fixed part is 0. decode: seconds a token and slots of its largest
//                  batch
//   store-bench    network: bytes a second of fixed + bytes / bandwidth through the medians of get_into on one thread,
//                  over TCP or else in shared memory; lookup: the median of exists there
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "base/json.h"
#include "base/result.h"
#include "sim/prefill_cost.h"

namespace nmc::sim {

// What the reports said; later ones win.
struct Calibration {
  std::optional<PrefillCost> prefill;
  std::optional<double> decode_token_s;
  std::optional<std::uint32_t> decode_slots;
  std::optional<double> network_bytes_per_s;
  std::optional<double> lookup_s;
};

// kInvalidArgument for JSON that is no such report, or has no row to calibrate from, with `name` and what was expected.
Result<void> calibrate(const Json& report, std::string_view name, Calibration& calibration);

}  // namespace nmc::sim
