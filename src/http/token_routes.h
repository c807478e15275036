// Text to token ids and back, for clients that count before they ask.
#pragma once

#include "http/route.h"

namespace nmc::http {

void answer_tokenize(Call call);
void answer_detokenize(Call call);

}  // namespace nmc::http
