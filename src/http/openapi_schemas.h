// Schemas of all bodies, as components of /openapi.json. Bounds and defaults are those that the parsers apply, for the
// model that is served. What JSON Schema can't say stays with the parsers: whether a prompt fits the context, sums and
// products of fields, sizes in bytes.
#pragma once

#include "base/json.h"
#include "http/server_state.h"

namespace nmc::http {

// {"ChatCompletionRequest": {...}, ...}
Json schema_components(const ServerState& state);

}  // namespace nmc::http
