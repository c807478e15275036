// The server's description of itself.
#pragma once

#include "http/route.h"

namespace nmc::http {

// OpenAPI 3.1, of all_routes().
Json openapi_json(const ServerState& state);

void answer_openapi(Call call);

}  // namespace nmc::http
