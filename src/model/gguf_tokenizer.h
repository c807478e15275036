// Tokenizer and chat template out of a GGUF file's metadata.
#pragma once

#include <memory>
#include <string_view>

#include "base/result.h"
#include "model/gguf.h"
#include "model/tokenizer.h"

namespace nmc::model {

// `tokenizer.ggml.*`: BPE over bytes ("gpt2") or SentencePiece's ("llama"). `path` names the file in messages.
Result<std::unique_ptr<Tokenizer>> gguf_tokenizer(const GgufHeader& header, std::string_view path);

}  // namespace nmc::model
