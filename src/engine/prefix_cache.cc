#include "engine/prefix_cache.h"

#include <cstring>

#include "base/log.h"

namespace nmc::engine {
namespace {

constexpr std::uint32_t kTailMagic = 0x4c54434e;  // "NCTL"

// A tail object: this header, the logits, then the partial block (absent when the prompt ends with a full block).
struct TailHeader {
  std::uint32_t magic = kTailMagic;
  std::uint32_t tokens = 0;       // in the partial block
  std::uint64_t vocab = 0;        // logits that follow
  std::uint64_t block_bytes = 0;  // 0 or the layout's
};
static_assert(sizeof(TailHeader) == 24);

std::size_t tail_bytes(std::size_t vocab, std::size_t block_bytes) {
  return sizeof(TailHeader) + vocab * sizeof(float) + block_bytes;
}

CacheSource source_of(const store::Pin& pin) {
  switch (pin.source()) {
    case store::Source::kDram: return CacheSource::kDram;
    case store::Source::kDisk: return CacheSource::kDisk;
    case store::Source::kRemote: return CacheSource::kRemote;
  }
  return CacheSource::kDram;
}

// Of what was attached so far, and this.
CacheSource joined(CacheSource so_far, CacheSource source) {
  return so_far == CacheSource::kNone || so_far == source ? source : CacheSource::kMixed;
}

}  // namespace

PrefixCache::PrefixCache(store::Store& store, kv::Namespace ns, std::size_t vocab, const Clock& clock)
    : store_(store), ns_(std::move(ns)), vocab_(vocab), clock_(clock) {}

std::unique_ptr<PrefixCache> PrefixCache::of_worker(const std::string& worker, store::Store& store, kv::Namespace ns,
                                                    std::size_t vocab, const RuntimeOptions& options) {
  if (options.reuse == Reuse::kNone) return nullptr;
  if (options.reuse == Reuse::kLocal) ns.scope = worker;
  return std::make_unique<PrefixCache>(store, std::move(ns), vocab, *options.clock);
}

kv::PrefixChain prefix_chain(kv::Namespace ns, const GenerateRequest& request, std::span<const TokenId> tokens) {
  ns.salt = request.cache_salt;
  if (request.adapter) ns.adapter = request.adapter->digest();
  kv::PrefixChain chain(ns.digest(), ns.layout.block_tokens);
  chain.append(tokens);
  return chain;
}

kv::PrefixChain PrefixCache::chain(const GenerateRequest& request, std::span<const TokenId> tokens) const {
  return prefix_chain(ns_, request, tokens);
}

void PrefixCache::restore(Sequence& sequence, bool fresh) {
  const Stopwatch watch(clock_);
  std::vector<std::string> keys;
  keys.reserve(sequence.chain->keys().size());
  for (const kv::PrefixKey& key : sequence.chain->keys()) keys.push_back(kv::object_key(key));
  store::Run run = store_.fetch_run(keys);
  const bool all = run.pins.size() == keys.size();
  if (!run.stop_reason.empty()) log_info("request {}: cached run ends early: {}", sequence.request.id, run.stop_reason);

  std::vector<CacheSource> sources;
  for (store::Pin& pin : run.pins) {
    sources.push_back(source_of(pin));
    sequence.add_block(Block(std::move(pin)));
  }
  sequence.computed = sequence.blocks.size() * layout().block_tokens;
  sequence.published = sequence.blocks.size();
  const double lookup_ms = watch.elapsed_ms();

  const Stopwatch tail_watch(clock_);
  CacheSource source = CacheSource::kNone;
  const bool exact = all && fresh && restore_tail(sequence, &source);
  if (!exact && sequence.remaining() == 0) {
    // Every block is there but the logits aren't: the last block is computed again, into memory of its own.
    sequence.blocks.pop_back();
    sequence.addresses.pop_back();
    sequence.published = sequence.blocks.size();
    sequence.computed = sequence.blocks.size() * layout().block_tokens;
  }
  if (!fresh) return;
  RequestMetrics& metrics = sequence.metrics;
  (run.from_disk + run.from_remote > 0 ? metrics.restore_ms : metrics.lookup_ms) = lookup_ms;
  metrics.restore_ms += tail_watch.elapsed_ms();
  metrics.hit_blocks = sequence.published;
  if (sequence.published > 0) source = CacheSource::kNone;  // the blocks' then, of which there are more
  for (std::size_t i = 0; i < sequence.published; ++i) source = joined(source, sources[i]);
  metrics.cache_source = source;
  metrics.saved_tokens = sequence.computed;
  metrics.computed_tokens = metrics.prompt_tokens - metrics.saved_tokens;
}

bool PrefixCache::restore_tail(Sequence& sequence, CacheSource* source) {
  const std::size_t partial = sequence.chain->tail().size();
  const std::size_t block_bytes = partial == 0 ? 0 : layout().block_bytes();
  const std::string key = kv::object_key(sequence.chain->tail_object_key());
  std::optional<store::Pin> pin = store_.fetch(key, store::ObjectClass::kTail, tail_bytes(vocab_, block_bytes));
  if (!pin) return false;

  TailHeader header;
  const std::span<const std::byte> bytes = pin->bytes();
  std::memcpy(&header, bytes.data(), sizeof header);
  if (header.magic != kTailMagic || header.tokens != partial || header.vocab != vocab_ ||
      header.block_bytes != block_bytes) {
    return false;
  }
  if (partial > 0) {
    Result<store::Reservation> own = store_.reserve(store::ObjectClass::kBlock, block_bytes);
    if (!own) return false;  // no room now: computing needs the block too, so admission will wait for it
    std::memcpy(own->bytes().data(), bytes.data() + sizeof header + vocab_ * sizeof(float), block_bytes);
    sequence.add_block(Block(std::move(*own)));
  }
  *source = source_of(*pin);
  sequence.logits.resize(vocab_);
  std::memcpy(sequence.logits.data(), bytes.data() + sizeof header, vocab_ * sizeof(float));
  sequence.computed = sequence.tokens.size();
  return true;
}

void PrefixCache::publish(Sequence& sequence) {
  const std::size_t full = sequence.computed / layout().block_tokens;
  for (; sequence.published < full; ++sequence.published) {
    const std::size_t i = sequence.published;
    if (sequence.blocks[i].committed()) continue;
    Result<store::Pin> pin =
        store_.commit(sequence.blocks[i].take_reservation(), kv::object_key(sequence.chain->keys()[i]));
    if (!pin) {  // the block stays the sequence's own; the next step tries again
      log_info("request {}: block {} not published: {}", sequence.request.id, i, pin.error().message);
      return;
    }
    sequence.replace_block(i, Block(std::move(*pin)));
  }
}

void PrefixCache::publish_tail(const Sequence& sequence, std::span<const float> logits) {
  const std::size_t partial = sequence.chain->tail().size();
  const std::size_t block_bytes = partial == 0 ? 0 : layout().block_bytes();
  const std::size_t bytes = tail_bytes(vocab_, block_bytes);
  const std::string key = kv::object_key(sequence.chain->tail_object_key());
  if (store_.lookup(key)) return;
  Result<store::Reservation> space = store_.reserve(store::ObjectClass::kTail, bytes);
  if (!space) return;  // the cap or pressure: the next such prompt computes its last block
  const TailHeader header{.tokens = static_cast<std::uint32_t>(partial), .vocab = vocab_, .block_bytes = block_bytes};
  std::byte* to = space->bytes().data();
  std::memcpy(to, &header, sizeof header);
  std::memcpy(to + sizeof header, logits.data(), vocab_ * sizeof(float));
  if (partial > 0) {
    std::memcpy(to + sizeof header + vocab_ * sizeof(float),
                sequence.addresses[sequence.tokens.size() / layout().block_tokens], block_bytes);
  }
  const Result<store::Pin> pin = store_.commit(std::move(*space), key);
  if (!pin) log_info("request {}: tail not kept: {}", sequence.request.id, pin.error().message);
}

void PrefixCache::release(Sequence& sequence) {
  std::vector<store::Pin> chain;
  for (std::size_t i = 0; i < sequence.published; ++i) {
    if (sequence.blocks[i].committed()) chain.push_back(sequence.blocks[i].take_pin());
  }
  store_.touch_run(chain);
  sequence.release_blocks();
}

}  // namespace nmc::engine
