// The JSON that asks an OpenAI server for an answer.
#pragma once

#include <string>

#include "lab/load_prompts.h"

namespace nmc::lab {

struct BodyOptions {
  std::string model;
  bool chat = false;  // /v1/chat/completions: the prompt as words, in one message
  bool text = false;  // the prompt as words, where a server takes no token ids
  bool streamed = true;
  bool ignore_eos = true;  // answers of the planned length; not every server knows it
};

// Greedy; `usage` is asked for.
std::string format_body(const LoadPrompt& prompt, const BodyOptions& options);

}  // namespace nmc::lab
