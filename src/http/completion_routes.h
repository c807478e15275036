// Requests for text.
#pragma once

#include "http/route.h"

namespace nmc::http {

void answer_chat_completions(Call call);
void answer_completions(Call call);

}  // namespace nmc::http
