// Answers that are ready at once, and bodies that have to be read first.
#pragma once

#include <functional>
#include <string>

#include "base/json.h"
#include "http/route.h"
#include "net/http.h"

namespace nmc::http {

net::HttpResponse json_response(const Json& json, int status = 200);
net::HttpResponse empty_response(int status = 200);

// Runs `work` with the body: on this I/O thread, or, if the body is large, on the task thread. Answers the exchange
// itself when the body is no JSON by its Content-Type (400) or too many large ones wait already (503).
using BodyWork =
    std::function<void(const std::shared_ptr<ServerState>& state, const std::string& body, const Exchange& exchange)>;
void with_json_body(Call call, BodyWork work);

}  // namespace nmc::http
