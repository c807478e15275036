// A model ready to serve: decoder, tokenizer and chat template that belong together.
#pragma once

#include <memory>
#include <string>

#include "base/dtype.h"
#include "base/result.h"
#include "base/thread_pool.h"
#include "kv/prefix.h"
#include "model/chat_template.h"
#include "model/config.h"
#include "model/decoder.h"
#include "model/generation_defaults.h"
#include "model/tokenizer.h"

namespace nmc::model {

// Immutable, thread-safe.
struct Model {
  std::string name;  // "tiny", "smollm2", or the name of folder or file
  ModelConfig config;
  GenerationDefaults defaults;
  std::unique_ptr<Tokenizer> tokenizer;
  std::unique_ptr<ChatTemplate> chat_template;
  std::unique_ptr<Decoder> decoder;

  // Ids that end a generation: the config's and the tokenizer's.
  std::vector<kv::TokenId> eos_ids() const;
  // Everything KV depends on, without adapter and salt.
  kv::Namespace kv_namespace(std::uint32_t block_tokens) const;
};

// `spec` is "tiny" (deterministic random weights, byte tokenizer, made in memory), "smollm2" (smollm2_file()), a GGUF
// file or a folder in Hugging Face layout.
Result<Model> load_model(const std::string& spec, Dtype dtype, ThreadPool& pool, const PackOptions& options = {});

}  // namespace nmc::model
