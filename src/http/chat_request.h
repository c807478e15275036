// The part of a chat completion's body that becomes the prompt: messages, tools, documents, and how to render them.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "base/json.h"
#include "http/status.h"
#include "model/chat_template.h"

namespace nmc::http {

// Messages come out as templates read them: role `developer` as `system`, members that are null left out except
// `content`, the arguments of tool calls as objects. Members unknown to us stay: a template may know them.
ApiResult<model::Chat> parse_chat(const Json& body);

}  // namespace nmc::http
