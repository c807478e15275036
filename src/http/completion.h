// One request for text, from the engine's tokens to the client's answer.
#pragma once

#include <memory>
#include <vector>

#include "engine/request.h"
#include "http/completion_format.h"
#include "http/completion_request.h"
#include "http/server_state.h"
#include "net/http_server.h"

namespace nmc::http {

// Submits `engine_requests` (one for each choice of the answer) and answers `exchange` with what comes back, whole or
// as a stream of one event a token. When the client goes away, or a stop string ends a choice, the engine's requests
// are cancelled. Call on the exchange's I/O thread (in a handler or a posted task).
//
// Threads: engine threads only append to an inbox and post; text is made on the connection's I/O thread, so that a slow
// tokenizer or client never holds up a batch.
void start_completion(std::shared_ptr<ServerState> state, const CompletionRequest& request,
                      std::vector<engine::GenerateRequest> engine_requests, CompletionFormat format,
                      std::shared_ptr<net::HttpExchange> exchange);

}  // namespace nmc::http
