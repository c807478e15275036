// Fields of the OpenAI API (and of its common extensions) that would change the answer and that this server doesn't do.
#pragma once

#include "base/json.h"
#include "http/completion_request.h"
#include "http/json_schema.h"
#include "http/status.h"

namespace nmc::http {

// An error for the first such field that asks for something; a field that is absent, null, or asks for what happens
// anyway passes.
ApiResult<void> refuse_unsupported_fields(const Json& body, Endpoint endpoint);
// The same for those that say what a conversation's prompt is.
ApiResult<void> refuse_unsupported_conversation_fields(const Json& body);

// What such fields may be, as members of the schema of a body.
void add_unsupported_fields(schema::Object& object, Endpoint endpoint);
void add_unsupported_conversation_fields(schema::Object& object);

}  // namespace nmc::http
