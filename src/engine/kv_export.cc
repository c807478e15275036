#include "engine/kv_export.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "base/check.h"
#include "base/entropy.h"
#include "base/failpoint.h"
#include "base/log.h"
#include "engine/prefix_cache.h"
#include "kv/snapshot.h"
#include "net/async_signal.h"
#include "transport/mover.h"

namespace nmc::engine {
namespace {

// How long a pull waits for more before it says that there is nothing yet.
constexpr Nanos kPullPatience = std::chrono::milliseconds(500);
// Of a snapshot in one answer over TCP: enough to fill the pipe, little enough to interleave.
constexpr std::uint64_t kPullBytesMax = 4 << 20;
// Spans a block: as many as there are layers would be small pieces, one would come when the prompt is done.
constexpr std::uint32_t kSpansABlock = 8;

// The divisor of `layers` that gives about kSpansABlock spans.
std::uint32_t layers_per_span(std::uint32_t layers) {
  for (std::uint32_t size = std::max(1u, layers / kSpansABlock); size < layers; ++size) {
    if (layers % size == 0) return size;
  }
  return layers;
}

Digest random_digest() {
  const std::uint64_t words[4] = {machine_random(), machine_random(), machine_random(), machine_random()};
  return sha256(std::as_bytes(std::span(words)));
}

}  // namespace

// ---- a snapshot that grows ----

class SnapshotExport final : public KvOutlet {
 public:
  SnapshotExport(const kv::SnapshotHeader& header, transport::Buffer buffer)
      : header_(header), buffer_(std::move(buffer)), encoder_(header, buffer_.bytes()) {
    publish();
  }

  void layer_done(const Sequence& sequence, std::size_t end, std::size_t layer) override {
    const Stopwatch watch;
    // Blocks that came from the cache, or from steps of another life of this sequence.
    if (layer == 0) add_blocks(sequence, sequence.computed / header_.layout.block_tokens);
    const std::uint32_t ready =
        end >= header_.tokens ? header_.blocks() : static_cast<std::uint32_t>(end / header_.layout.block_tokens);
    const std::uint32_t size = header_.layers_per_span;
    const auto done = static_cast<std::uint32_t>(layer) + 1;
    if (done % size == 0 && ready > blocks_) {
      for (std::uint32_t block = blocks_; block < ready; ++block) add_span(sequence, block, done - size);
      publish();
      if (auto hit = failpoint("handover.span")) log_warning("hand-over: {}", hit->message);
    }
    if (done == header_.layout.layers) blocks_ = std::max(blocks_, ready);
    encode_ms_ += watch.elapsed_ms();
  }

  // What no pass wrote: it came from the cache.
  void finish(Sequence& sequence) {
    const Stopwatch watch;
    add_blocks(sequence, header_.blocks());
    encoder_.finish();
    publish();
    sequence.metrics.encode_ms = encode_ms_ + watch.elapsed_ms();
    sequence.metrics.snapshot_bytes = buffer_.bytes().size();
  }

  void fail() {
    failed_.store(true, std::memory_order_release);
    signal_.notify();
  }

  // For pulls.
  std::uint64_t written() const { return written_.load(std::memory_order_acquire); }
  std::uint64_t total() const { return buffer_.bytes().size(); }
  bool failed() const { return failed_.load(std::memory_order_acquire); }
  net::ByteSpan bytes() const { return buffer_.bytes(); }
  int fd() const { return buffer_.fd(); }
  net::AsyncSignal& signal() { return signal_; }

 private:
  void add_span(const Sequence& sequence, std::uint32_t block, std::uint32_t first_layer) {
    const std::size_t bytes = header_.layers_per_span * header_.layout.span_bytes();
    encoder_.span(block, first_layer, {sequence.addresses[block] + header_.layout.span_offset(first_layer), bytes});
  }
  void add_blocks(const Sequence& sequence, std::size_t until) {
    for (; blocks_ < until; ++blocks_) {
      for (std::uint32_t layer = 0; layer < header_.layout.layers; layer += header_.layers_per_span)
        add_span(sequence, blocks_, layer);
    }
    publish();
  }
  // Pairs with written(): what was encoded before is seen by whoever sees the number.
  void publish() {
    written_.store(encoder_.written(), std::memory_order_release);
    signal_.notify();
  }

  const kv::SnapshotHeader header_;
  transport::Buffer buffer_;
  kv::SnapshotEncoder encoder_;
  std::uint32_t blocks_ = 0;  // leading ones that are in whole
  double encode_ms_ = 0;
  std::atomic<std::uint64_t> written_{0};
  std::atomic<bool> failed_{false};
  net::AsyncSignal signal_;
};

// ---- the worker's side ----

KvExports::KvExports(const KvContext& context) : context_(context), secret_(random_digest()) {}

KvExports::~KvExports() {
  MutexLock lock(mutex_);
  for (auto& [handover, one] : exports_) let_go(std::move(one));
}

Result<std::shared_ptr<SnapshotExport>> KvExports::create_snapshot(std::uint64_t tokens) const {
  if (auto hit = failpoint("handover.allocate")) return Failure(*std::move(hit));
  const kv::SnapshotHeader header{.layout = context_.layout,
                                  .ns = context_.ns,
                                  .tokens = tokens,
                                  .layers_per_span = layers_per_span(context_.layout.layers)};
  const std::size_t bytes = kv::snapshot_bytes(header);
  if (context_.transfer == Transfer::kTcp) {
    NMC_ASSIGN_OR_RETURN(Mapping mapping, Mapping::anonymous(bytes));
    return std::make_shared<SnapshotExport>(header, transport::Buffer(UniqueFd(), std::move(mapping)));
  }
  NMC_ASSIGN_OR_RETURN(UniqueFd fd, create_memfd("nmc-handover", bytes));
  NMC_ASSIGN_OR_RETURN(Mapping mapping,
                       Mapping::map(fd.get(), bytes, Mapping::Access::kReadWrite, "hand-over segment"));
  return std::make_shared<SnapshotExport>(header, transport::Buffer(std::move(fd), std::move(mapping)));
}

void KvExports::begin(std::uint64_t handover, Sequence& sequence) {
  if (auto hit = failpoint("handover.begin")) log_warning("hand-over: {}", hit->message);
  Export fresh;
  if (context_.transfer != Transfer::kDirect) {
    const Stopwatch watch(*context_.clock);
    auto snapshot = create_snapshot(sequence.request.prompt.size());
    if (!snapshot) {
      log_warning("request {}: no room for its hand-over, so its KV will be computed twice: {}", sequence.request.id,
                  snapshot.error().message);
      return;
    }
    sequence.metrics.export_ms = watch.elapsed_ms();
    sequence.outlet = *snapshot;
    fresh.snapshot = *std::move(snapshot);
  }
  MutexLock lock(mutex_);
  exports_.insert_or_assign(handover, std::move(fresh));
}

Result<std::vector<BlockName>> KvExports::complete(std::uint64_t handover, Sequence& sequence) {
  if (auto hit = failpoint("handover.send")) {
    release(handover);
    return Failure(*std::move(hit));
  }
  if (context_.transfer == Transfer::kDirect) return complete_named(handover, sequence);
  NMC_RETURN_IF_ERROR(complete_snapshot(handover, sequence));
  return std::vector<BlockName>();
}

Result<void> KvExports::complete_snapshot(std::uint64_t handover, Sequence& sequence) {
  const std::shared_ptr<SnapshotExport> snapshot = find_snapshot(handover);
  if (snapshot == nullptr) return unavailable("hand-over {}: nothing is kept of it", handover);
  snapshot->finish(sequence);
  sequence.outlet.reset();
  sequence.metrics.transfer_carrier = transfer_name(context_.transfer);
  MutexLock lock(mutex_);
  const auto it = exports_.find(handover);
  if (it == exports_.end()) return unavailable("hand-over {}: it isn't wanted any more", handover);
  it->second.complete = true;
  it->second.expires = context_.clock->now() + context_.lease;
  return {};
}

Result<std::vector<BlockName>> KvExports::complete_named(std::uint64_t handover, Sequence& sequence) {
  const Stopwatch watch(*context_.clock);
  const std::size_t count = context_.layout.blocks_for(sequence.computed);
  NMC_REQUIRE(sequence.blocks.size() >= count, "blocks={} needed={}", sequence.blocks.size(), count);
  Named named;
  for (std::size_t i = 0; i < count; ++i) {
    Block& block = sequence.blocks[i];
    BlockName name;
    if (block.committed() && sequence.chain && i < sequence.chain->keys().size()) {
      name.key = sequence.chain->keys()[i];
    } else {
      const std::uint64_t words[2] = {handover, i};
      Sha256 hash;
      hash.update(std::as_bytes(std::span(secret_.bytes)));
      hash.update(std::as_bytes(std::span(words)));
      name.key = hash.finish();
      name.sealed = true;
      Result<store::Pin> pin = context_.store->commit(block.take_reservation(), kv::object_key(name.key));
      if (!pin) {
        let_go({.named = std::move(named)});
        return Failure(std::move(pin).error());
      }
      sequence.replace_block(i, Block(*std::move(pin)));
    }
    name.generation = block.pin().generation();
    named.pins.push_back(block.pin().duplicate());
    named.names.push_back(name);
  }
  std::vector<BlockName> names = named.names;
  sequence.metrics.snapshot_bytes = count * context_.layout.block_bytes();
  sequence.metrics.transfer_carrier = "memory";
  MutexLock lock(mutex_);
  Export& kept = exports_[handover];
  kept.named = std::move(named);
  kept.complete = true;
  kept.expires = context_.clock->now() + context_.lease;
  sequence.metrics.export_ms = watch.elapsed_ms();
  return names;
}

void KvExports::renew(std::uint64_t handover) {
  MutexLock lock(mutex_);
  const auto it = exports_.find(handover);
  if (it != exports_.end()) it->second.expires = context_.clock->now() + context_.lease;
}

void KvExports::let_go(Export gone) {
  if (gone.snapshot != nullptr) gone.snapshot->fail();
  gone.named.pins.clear();
  for (const BlockName& name : gone.named.names) {
    if (name.sealed) (void)context_.store->remove(kv::object_key(name.key));  // unless its taker has done so
  }
}

void KvExports::release(std::uint64_t handover) {
  Export gone;
  {
    MutexLock lock(mutex_);
    const auto it = exports_.find(handover);
    if (it == exports_.end()) return;
    gone = std::move(it->second);
    exports_.erase(it);
  }
  let_go(std::move(gone));
}

void KvExports::release_expired() {
  const Nanos now = context_.clock->now();
  std::vector<std::uint64_t> expired;
  {
    MutexLock lock(mutex_);
    for (const auto& [handover, one] : exports_) {
      if (one.complete && now >= one.expires) expired.push_back(handover);
    }
  }
  for (const std::uint64_t handover : expired) {
    log_warning("hand-over {}: nobody took it in time, its blocks go back", handover);
    release(handover);
  }
}

std::size_t KvExports::count() const {
  MutexLock lock(mutex_);
  return exports_.size();
}

std::size_t KvExports::blocks_held() const {
  MutexLock lock(mutex_);
  std::size_t blocks = 0;
  for (const auto& [handover, one] : exports_) blocks += one.named.pins.size();
  return blocks;
}

// ---- the taker's side ----

std::shared_ptr<SnapshotExport> KvExports::find_snapshot(std::uint64_t handover) {
  MutexLock lock(mutex_);
  const auto it = exports_.find(handover);
  if (it == exports_.end()) return nullptr;
  if (it->second.complete) it->second.expires = context_.clock->now() + context_.lease;
  return it->second.snapshot;
}

boost::asio::awaitable<net::Reply> KvExports::pull(net::Request& request) {
  const std::uint64_t handover = request.body.get_u64("hand-over");
  const std::uint64_t offset = request.body.get_u64("offset");
  if (const auto whole = request.body.finish(); !whole) co_return net::Reply(whole.error());
  if (auto hit = failpoint("handover.pull")) co_return net::Reply(*std::move(hit));
  PullReply reply;
  net::Reply answer;
  const Stopwatch waited;
  const std::shared_ptr<SnapshotExport> snapshot = find_snapshot(handover);
  if (snapshot == nullptr) {
    reply.state = PullState::kFailed;
  } else {
    std::uint64_t seen = snapshot->signal().epoch();
    while (snapshot->written() <= offset && !snapshot->failed() && waited.elapsed() < kPullPatience) {
      co_await snapshot->signal().wait(seen, kPullPatience - waited.elapsed());
      seen = snapshot->signal().epoch();
    }
    reply.total = snapshot->total();
    reply.written = snapshot->written();
    reply.state = snapshot->failed()             ? PullState::kFailed
                  : reply.written == reply.total ? PullState::kWhole
                                                 : PullState::kMore;
    answer.keep_alive = snapshot;
    if (context_.transfer == Transfer::kShm && offset == 0 && snapshot->fd() >= 0) answer.fds.push_back(snapshot->fd());
    if (context_.transfer == Transfer::kTcp && offset < reply.written) {
      const std::uint64_t bytes = std::min(reply.written - offset, kPullBytesMax);
      answer.payload.push_back(snapshot->bytes().subspan(offset, bytes));
    }
  }
  net::BodyWriter body;
  reply.waited = waited.elapsed();
  put_pull_reply(body, reply);
  answer.body = std::move(body).take();
  co_return answer;
}

}  // namespace nmc::engine
