// What the engine's tests share: a small decoder with everything around it, and requests as verbs.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/hash.h"
#include "base/mutex.h"
#include "base/rng.h"
#include "base/thread_pool.h"
#include "engine/runtime.h"
#include "model/decoder.h"
#include "model/tiny.h"
#include "store/store.h"

namespace nmc::engine::testing {

// A Llama shape whose sizes are no multiples of panels, vectors or tiles.
inline model::ModelConfig odd_config() {
  model::ModelConfig config = model::tiny_config();
  config.layers = 2;
  config.hidden = 88;
  config.heads = 6;
  config.kv_heads = 2;
  config.head_dim = 20;
  config.intermediate = 141;
  config.vocab = 301;
  config.eos_ids.clear();
  return config;
}

inline std::vector<TokenId> random_tokens(std::size_t count, std::uint64_t seed, std::size_t vocab) {
  Rng rng(seed);
  std::vector<TokenId> tokens(count);
  for (TokenId& token : tokens) token = static_cast<TokenId>(rng.below(vocab));
  return tokens;
}

// Digest over the logits of every step, in order, and the tokens that came of them.
struct Trace {
  std::vector<TokenId> tokens;
  std::string digest;
  bool operator==(const Trace&) const = default;
};

inline void PrintTo(const Trace& trace, std::ostream* out) {
  *out << trace.tokens.size() << " tokens, " << trace.digest.substr(0, 16);
}

// The reference: the decoder alone, memory of its own, the prompt in chunks of `chunk` tokens, then one token a pass.
// `on_logits` sees those that each token is taken from; `mutate` may spoil the block table before each pass.
inline std::vector<TokenId> plain_pass(const model::Decoder& decoder, ThreadPool& pool, const kv::KvLayout& kv,
                                       const std::vector<TokenId>& prompt, std::size_t max_tokens,
                                       const std::function<void(std::span<const float>)>& on_logits,
                                       std::size_t chunk = SIZE_MAX, const model::Adapter* adapter = nullptr,
                                       const std::function<void(std::vector<std::byte*>&)>& mutate = nullptr) {
  const std::size_t blocks = kv.blocks_for(prompt.size() + max_tokens);
  std::vector<std::vector<std::byte>> memory(blocks, std::vector<std::byte>(kv.block_bytes(), std::byte{0xff}));
  std::vector<std::byte*> table;
  for (auto& block : memory) table.push_back(block.data());
  std::vector<TokenId> tokens = prompt;
  std::vector<float> logits(decoder.config().vocab);
  model::Workspace workspace;
  for (std::size_t computed = 0; tokens.size() < prompt.size() + max_tokens;) {
    const std::size_t take = std::min(chunk, tokens.size() - computed);
    const bool last = computed + take == tokens.size();
    std::vector<std::byte*> used = table;
    if (mutate) mutate(used);
    const model::Chunk part{.tokens = std::span(tokens).subspan(computed, take),
                            .start = computed,
                            .blocks = std::span(used).first(kv.blocks_for(computed + take)),
                            .logits = last ? logits.data() : nullptr,
                            .adapter = adapter};
    decoder.forward(pool, std::span(&part, 1), kv.block_tokens, workspace);
    computed += take;
    if (!last) continue;
    on_logits(logits);
    tokens.push_back(static_cast<TokenId>(std::max_element(logits.begin(), logits.end()) - logits.begin()));
  }
  return {tokens.begin() + static_cast<std::ptrdiff_t>(prompt.size()), tokens.end()};
}

// Collects what a request said, and lets a test wait for its end.
class Collector final : public RequestListener {
 public:
  void on_prompt(std::span<const PromptToken> tokens) override {
    MutexLock lock(mutex_);
    EXPECT_TRUE(tokens_.empty() && !tokens.empty());
    prompt_.insert(prompt_.end(), tokens.begin(), tokens.end());
    changed_.notify_all();
  }
  void on_token(const SampledToken& token) override {
    MutexLock lock(mutex_);
    tokens_.push_back(token.id);
    sampled_.push_back(token);
    changed_.notify_all();
  }
  void on_finish(const Outcome& outcome) override {
    MutexLock lock(mutex_);
    ++finishes_;
    outcome_ = outcome;
    changed_.notify_all();
  }
  const Outcome& wait() {
    MutexLock lock(mutex_);
    while (!outcome_) changed_.wait(mutex_);
    return *outcome_;
  }
  std::vector<TokenId> wait_tokens(std::size_t count) {
    MutexLock lock(mutex_);
    while (tokens_.size() < count && !outcome_) changed_.wait(mutex_);
    return tokens_;
  }
  // At least `count` of them, unless it ended before.
  std::vector<PromptToken> wait_prompt(std::size_t count) {
    MutexLock lock(mutex_);
    while (prompt_.size() < count && !outcome_) changed_.wait(mutex_);
    return prompt_;
  }
  std::vector<SampledToken> sampled() {
    MutexLock lock(mutex_);
    return sampled_;
  }
  std::vector<TokenId> tokens() {
    MutexLock lock(mutex_);
    return tokens_;
  }
  int finishes() {
    MutexLock lock(mutex_);
    return finishes_;
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  std::vector<TokenId> tokens_ NMC_GUARDED_BY(mutex_);
  std::vector<PromptToken> prompt_ NMC_GUARDED_BY(mutex_);
  std::vector<SampledToken> sampled_ NMC_GUARDED_BY(mutex_);
  std::optional<Outcome> outcome_ NMC_GUARDED_BY(mutex_);
  int finishes_ NMC_GUARDED_BY(mutex_) = 0;
};

// Decoder, store and runtime of one test; rebuilt as a test asks.
class Engine {
 public:
  struct Setup {
    model::ModelConfig config = odd_config();
    Dtype dtype = Dtype::kF32;
    std::size_t blocks = 256;
    Path disk_dir;
    RuntimeOptions options;
    int threads = 2;
    std::uint64_t seed = 7;
    std::size_t adapter_rank = 0;  // 0: requests run on the base model, else on a random adapter
    std::size_t tail_bytes = std::size_t{1} << 20;
  };

  explicit Engine(Setup setup) : setup_(std::move(setup)), pool_(setup_.threads) {
    auto decoder = model::Decoder::random(setup_.config, setup_.seed, setup_.dtype, pool_);
    if (!decoder) ADD_FAILURE() << decoder.error().message;
    decoder_ = std::move(*decoder);
    if (setup_.adapter_rank > 0) adapter_ = random_adapter(setup_.adapter_rank, setup_.seed);
    start();
  }

  // A new runtime on a new store, as after a restart of the process.
  void start() {
    runtime_.reset();
    store_.reset();
    store::StoreOptions options;
    options.block_bytes = layout().block_bytes();
    options.dram_bytes = setup_.blocks * options.block_bytes + setup_.tail_bytes;
    options.tail_bytes = setup_.tail_bytes;
    options.disk_dir = setup_.disk_dir;
    auto store = store::Store::create(options);
    if (!store) {
      ADD_FAILURE() << store.error().message;
      std::abort();
    }
    store_ = std::move(*store);
    RuntimeOptions runtime = setup_.options;
    runtime.on_logits = [this](const std::string& id, std::size_t, std::span<const float> logits) {
      MutexLock lock(mutex_);
      auto& hash = hashes_[id];
      if (!hash) hash = std::make_unique<Sha256>();
      hash->update(std::as_bytes(logits));
    };
    kv::Namespace ns;
    ns.weights = decoder_->weights_digest();
    ns.config = setup_.config.digest_text();
    ns.layout = layout();
    auto made = create_runtime(runtime, *decoder_, ns, *store_, pool_);
    if (!made) {
      ADD_FAILURE() << made.error().message;
      std::abort();
    }
    runtime_ = std::move(*made);
  }

  kv::KvLayout layout() const { return decoder_->kv_layout(setup_.options.block_tokens); }

  GenerateRequest request(std::string id, std::vector<TokenId> prompt, std::size_t max_tokens) const {
    GenerateRequest made;
    made.id = std::move(id);
    made.prompt = std::move(prompt);
    made.max_tokens = max_tokens;
    made.sampling.temperature = 0;
    made.adapter = adapter_;
    return made;
  }
  std::shared_ptr<Collector> submit(GenerateRequest request) {
    auto collector = std::make_shared<Collector>();
    const Result<void> done = runtime_->submit(std::move(request), collector);
    EXPECT_TRUE(done) << done.error().message;
    return collector;
  }
  Trace trace(const std::string& id, Collector& collector) {
    collector.wait();
    MutexLock lock(mutex_);
    const auto it = hashes_.find(id);
    Trace trace{collector.tokens(), it == hashes_.end() ? "none" : it->second->finish().hex()};
    hashes_.erase(id);
    return trace;
  }
  // One request from start to end.
  Trace run(const std::vector<TokenId>& prompt, std::size_t max_tokens, Outcome* outcome = nullptr) {
    const std::string id = "run-" + std::to_string(next_id_++);
    auto collector = submit(request(id, prompt, max_tokens));
    const Trace got = trace(id, *collector);
    if (outcome != nullptr) *outcome = collector->wait();
    return got;
  }

  // plain_pass(), as a trace.
  Trace plain(const std::vector<TokenId>& prompt, std::size_t max_tokens, std::size_t chunk = SIZE_MAX,
              const std::function<void(std::vector<std::byte*>&)>& mutate = nullptr) {
    Sha256 hash;
    std::vector<TokenId> tokens = plain_pass(
        *decoder_, pool_, layout(), prompt, max_tokens,
        [&](std::span<const float> logits) { hash.update(std::as_bytes(logits)); }, chunk, adapter_.get(), mutate);
    return {std::move(tokens), hash.finish().hex()};
  }

  // What plain() and request() use from now on.
  void use_adapter(std::shared_ptr<const model::Adapter> adapter) { adapter_ = std::move(adapter); }
  std::shared_ptr<const model::Adapter> random_adapter(std::size_t rank, std::uint64_t seed) {
    auto adapter = model::Adapter::random(setup_.config, rank, seed, pool_);
    if (!adapter) ADD_FAILURE() << adapter.error().message;
    return *adapter;
  }

  Runtime& runtime() { return *runtime_; }
  store::Store& store() { return *store_; }
  std::size_t vocab() const { return setup_.config.vocab; }
  const Setup& setup() const { return setup_; }

 private:
  Setup setup_;
  ThreadPool pool_;
  std::unique_ptr<model::Decoder> decoder_;
  std::shared_ptr<const model::Adapter> adapter_;
  std::unique_ptr<store::Store> store_;
  int next_id_ = 0;
  Mutex mutex_;
  std::map<std::string, std::unique_ptr<Sha256>> hashes_ NMC_GUARDED_BY(mutex_);
  std::unique_ptr<Runtime> runtime_;  // last: its workers use all of the above
};

}  // namespace nmc::engine::testing
