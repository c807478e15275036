// Internal to http: the schemas of what clients send.
#pragma once

#include "base/json.h"
#include "http/endpoint.h"
#include "http/server_state.h"

namespace nmc::http {

Json completion_request_schema(const ServerState& state, Endpoint endpoint);
Json tokenize_request_schema(const ServerState& state);
Json detokenize_request_schema(const ServerState& state);
Json chat_message_schema();

}  // namespace nmc::http
