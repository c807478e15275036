// What goes into the engine and what comes out of it: token ids, never text.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "kv/prefix.h"
#include "model/adapter.h"

namespace nmc::engine {

using kv::TokenId;

struct LogitBias {
  TokenId id = 0;
  float bias = 0;  // added to the id's logit
};

struct SamplingParams {
  float temperature = 1.0f;  // 0: greedy
  float top_p = 1.0f;        // (0, 1]
  std::uint32_t top_k = 0;   // 0: all
  float min_p = 0.0f;        // [0, 1]: ids less likely than this share of the likeliest are left out
  std::uint64_t seed = 0;    // the noise of a token is keyed by (seed, position), so a resumed request draws the same
  float presence_penalty = 0.0f;    // taken from the logit of an id that was generated
  float frequency_penalty = 0.0f;   // taken from it for each time
  float repetition_penalty = 1.0f;  // above 0; divides the logit, when positive, or multiplies it, of an id that the
                                    // prompt or the answer holds
  std::vector<LogitBias> logit_bias;
  std::vector<TokenId> allowed_ids;                 // nothing else is drawn; empty: all are allowed
  std::vector<std::vector<TokenId>> bad_sequences;  // none is generated whole; none is empty

  // What is drawn depends on the tokens before, or on ids by name.
  bool changes_logits() const {
    return presence_penalty != 0.0f || frequency_penalty != 0.0f || repetition_penalty != 1.0f || !logit_bias.empty() ||
           !allowed_ids.empty() || !bad_sequences.empty();
  }
};

struct GenerateRequest {
  std::string id;               // unique among live requests
  std::vector<TokenId> prompt;  // 1 .. max_context - 1 ids, each below the vocabulary size
  SamplingParams sampling;
  std::size_t max_tokens = 16;  // tokens to generate, at least 1
  std::size_t min_tokens = 0;   // what would end the answer isn't drawn before
  bool ignore_eos = false;
  std::vector<TokenId> stop_ids;          // end the answer as the model's own do, also with ignore_eos
  std::optional<std::uint32_t> logprobs;  // how many of the likeliest ids are told with each token; nullopt: not even
                                          // the token's own
  std::optional<std::uint32_t> prompt_logprobs;  // the same of the prompt's tokens but its first, by on_prompt(); then
                                                 // all of the prompt is computed, whatever the cache has
  std::vector<TokenId> forced;  // taken one after another in place of what would be drawn: for evaluation
  std::string cache_salt;       // KV is shared only between requests of equal salts (and equal adapters)
  std::shared_ptr<const model::Adapter> adapter;  // loaded for the runtime's decoder; null: the base model
  std::optional<Nanos> deadline;                  // absolute, by the runtime's clock; nullopt: none
  std::optional<Nanos> queue_deadline;            // for a worker to take it; nullopt: none
};

// Ids that end the answer to `request`: its own and, unless it ignores them, the model's.
std::vector<TokenId> ending_ids(const GenerateRequest& request, std::span<const TokenId> eos_ids);

enum class FinishReason { kStop, kLength, kCancelled, kFailed };

enum class CacheSource { kNone, kDram, kDisk, kRemote, kMixed };
const char* cache_source_name(CacheSource source);

// Names, units and meanings are those of docs/formats.md, "metrics".
struct RequestMetrics {
  double queue_ms = 0, lookup_ms = 0, restore_ms = 0, prefill_ms = 0;
  double export_ms = 0, encode_ms = 0, transport_ms = 0, unpack_ms = 0, import_ms = 0;
  double ttft_ms = 0, decode_ms = 0, e2e_ms = 0;
  std::size_t prompt_tokens = 0, computed_tokens = 0, saved_tokens = 0, output_tokens = 0;
  std::size_t hit_blocks = 0;
  CacheSource cache_source = CacheSource::kNone;
  std::uint64_t snapshot_bytes = 0, transfer_bytes = 0;
  std::string transfer_carrier = "none";  // none, memory, shm, tcp
  std::size_t preemptions = 0;
};

struct Outcome {
  FinishReason reason = FinishReason::kStop;
  std::optional<Error> error;  // with kFailed (and a kDeadlineExceeded one): why
  RequestMetrics metrics;
};

// The natural logarithm of an id's probability by the model alone: temperature 1, no penalties, no bias.
struct Logprob {
  TokenId id = 0;
  float logprob = 0;
};

struct SampledToken {
  TokenId id = 0;
  std::vector<Logprob> logprobs;  // where asked for: its own, then those of the likeliest, most likely first
};

// A token of the prompt, as likely as the model found it after those before it.
struct PromptToken {
  std::uint32_t position = 0;     // in the prompt, at least 1
  std::uint32_t rank = 0;         // 1: no id was likelier
  std::vector<Logprob> logprobs;  // its own, then those of the likeliest, most likely first
};

// Hears what becomes of one request. Called on an engine thread: must return quickly and never call back into the
// runtime except for cancel(). on_prompt, where prompt_logprobs are asked for, for each position from 1 on, once and in
// order, some at a time, before the first token. on_token for each generated id in order, the end-of-sequence id
// included when it ends the request; then on_finish exactly once, and nothing after it.
class RequestListener {
 public:
  virtual ~RequestListener() = default;
  virtual void on_prompt(std::span<const PromptToken>) {}
  virtual void on_token(const SampledToken& token) = 0;
  virtual void on_finish(const Outcome& outcome) = 0;
};

}  // namespace nmc::engine
