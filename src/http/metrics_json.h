// The document of GET /v1/metrics, schema nano-mooncake/metrics/v1.
#pragma once

#include "base/json.h"
#include "http/server_state.h"

namespace nmc::http {

Json metrics_json(const ServerState& state);

}  // namespace nmc::http
