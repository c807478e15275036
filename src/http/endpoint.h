// The two ways to ask for text.
#pragma once

namespace nmc::http {

enum class Endpoint { kChat, kCompletions };

}  // namespace nmc::http
