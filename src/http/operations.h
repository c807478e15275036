// What /openapi.json says of each route, as an OpenAPI 3.1 operation object.
#pragma once

#include "base/json.h"
#include "http/server_state.h"

namespace nmc::http {

Json chat_completions_operation(const ServerState& state);
Json completions_operation(const ServerState& state);
Json models_operation(const ServerState& state);
Json tokenize_operation(const ServerState& state);
Json detokenize_operation(const ServerState& state);
Json metrics_document_operation(const ServerState& state);
Json prometheus_operation(const ServerState& state);
Json load_operation(const ServerState& state);
Json healthz_operation(const ServerState& state);
Json health_operation(const ServerState& state);
Json ping_operation(const ServerState& state);
Json version_operation(const ServerState& state);
Json openapi_operation(const ServerState& state);
Json page_operation(const ServerState& state);

}  // namespace nmc::http
