// The live page at /: one document that shows /v1/metrics and chats. Its sources are in page/.
#pragma once

#include "http/route.h"
#include "net/http.h"

namespace nmc::http {

// The document, with a Content-Security-Policy that lets it run its own script and style and talk to its own origin,
// and nothing else. Thread-safe.
net::HttpResponse page_response();

void answer_page(Call call);  // open to all: what it shows asks for the key

}  // namespace nmc::http
