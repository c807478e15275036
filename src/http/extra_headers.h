// Headers that an answer carries whatever it turns out to be.
#pragma once

#include <memory>
#include <vector>

#include "net/http.h"
#include "net/http_server.h"

namespace nmc::http {

// `exchange`, with `headers` behind those of its answer. What the connection answers by itself, when the last reference
// goes, has none of them.
std::shared_ptr<net::HttpExchange> with_headers(std::shared_ptr<net::HttpExchange> exchange,
                                                std::vector<net::HttpHeader> headers);

}  // namespace nmc::http
