// The text of GET /metrics: the figures of /v1/metrics and the spread of requests, for Prometheus.
#pragma once

#include <string>

#include "http/server_state.h"

namespace nmc::http {

// Names of vLLM's where the meaning is the same, with its labels model_name and engine ("0"); nano_mooncake_ else. The
// list is in docs/compat.md.
std::string prometheus_text(const ServerState& state);

}  // namespace nmc::http
