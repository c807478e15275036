#include "engine/kv_import.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/failpoint.h"
#include "base/log.h"
#include "engine/block_sink.h"
#include "kv/prefix.h"
#include "kv/snapshot.h"

namespace nmc::engine {
namespace {

// One waits for its source most of its time. A front hands over no more at once than a worker may run.
constexpr std::size_t kThreadsMax = 64;
constexpr auto kRetryInterval = std::chrono::milliseconds(10);  // where there was no room

class InboundParcel : public Parcel {
 public:
  virtual Result<void> unpack(Sequence& to) = 0;
};

// ---- by name ----

class NamedParcel final : public InboundParcel {
 public:
  NamedParcel(const KvContext& context, std::vector<BlockName> names, std::uint64_t tokens,
              std::function<void()> on_taken)
      : context_(context), names_(std::move(names)), tokens_(tokens), on_taken_(std::move(on_taken)) {}
  ~NamedParcel() override { on_taken_(); }

  // The longest run of blocks that are there still. The rest is computed again.
  Result<void> unpack(Sequence& to) override {
    const Stopwatch watch(*context_.clock);
    const std::size_t full = tokens_ / context_.layout.block_tokens;
    std::vector<Block> blocks;
    for (std::size_t i = 0; i < names_.size(); ++i) {
      std::optional<store::Pin> pin = find(names_[i]);
      if (!pin) break;
      if (i < full) {
        blocks.emplace_back(*std::move(pin));
        continue;
      }
      // The next tokens go into it, so it has to be this sequence's own.
      Result<store::Reservation> own =
          context_.store->reserve(store::ObjectClass::kBlock, context_.layout.block_bytes());
      if (!own) return Failure(std::move(own).error());
      std::memcpy(own->bytes().data(), pin->bytes().data(), context_.layout.block_bytes());
      blocks.emplace_back(*std::move(own));
    }
    if (blocks.size() < names_.size())
      log_warning("request {}: {} of {} blocks of its hand-over are gone and are computed again", to.request.id,
                  names_.size() - blocks.size(), names_.size());
    to.computed = std::min<std::size_t>(tokens_, blocks.size() * context_.layout.block_tokens);
    to.published = std::min(full, blocks.size());
    for (Block& block : blocks) to.add_block(std::move(block));
    remove_sealed();
    to.metrics.import_ms = watch.elapsed_ms();
    return {};
  }

 private:
  // Another object of that key isn't what was handed over.
  std::optional<store::Pin> find(const BlockName& name) const {
    std::optional<store::Pin> pin = context_.store->lookup(kv::object_key(name.key));
    if (pin && (pin->generation() != name.generation || pin->bytes().size() != context_.layout.block_bytes()))
      return std::nullopt;
    return pin;
  }
  // Whoever holds them keeps them; nobody else finds them.
  void remove_sealed() const {
    for (const BlockName& name : names_) {
      if (name.sealed) (void)context_.store->remove(kv::object_key(name.key));
    }
  }

  const KvContext context_;
  const std::vector<BlockName> names_;
  const std::uint64_t tokens_;
  const std::function<void()> on_taken_;
};

// ---- snapshots ----

class ImportedParcel final : public InboundParcel {
 public:
  ImportedParcel(std::vector<store::Reservation> blocks, std::uint64_t tokens, const RequestMetrics& metrics)
      : blocks_(std::move(blocks)), tokens_(tokens), metrics_(metrics) {}

  std::size_t blocks() const override { return blocks_.size(); }

  Result<void> unpack(Sequence& to) override {
    for (store::Reservation& block : blocks_) to.add_block(Block(std::move(block)));
    to.computed = tokens_;
    to.published = 0;  // blocks of its own: publishing replaces them by those that are known already
    to.metrics.transport_ms = metrics_.transport_ms;
    to.metrics.unpack_ms = metrics_.unpack_ms;
    to.metrics.import_ms = metrics_.import_ms;
    to.metrics.transfer_bytes = metrics_.transfer_bytes;
    return {};
  }

 private:
  std::vector<store::Reservation> blocks_;
  const std::uint64_t tokens_;
  const RequestMetrics metrics_;
};

}  // namespace

Result<void> InboundKv::receive(Sequence& sequence) {
  // Kept until it was unpacked, or is known to be lost.
  std::unique_ptr<Parcel> parcel = std::move(sequence.parcel);
  if (auto hit = failpoint("handover.receive")) return Failure(*std::move(hit));
  Result<void> unpacked = static_cast<InboundParcel&>(*parcel).unpack(sequence);
  if (!unpacked && unpacked.error().code == ErrorCode::kResourceExhausted) sequence.parcel = std::move(parcel);
  if (auto hit = failpoint("handover.received")) log_warning("hand-over: {}", hit->message);
  return unpacked;
}

std::unique_ptr<Parcel> named_parcel(const KvContext& context, std::vector<BlockName> names, std::uint64_t tokens,
                                     std::function<void()> on_taken) {
  return std::make_unique<NamedParcel>(context, std::move(names), tokens, std::move(on_taken));
}

struct KvImports::Import {
  std::uint64_t handover = 0;
  std::string source;
  std::uint64_t tokens = 0;
  std::function<void()> on_taken;
  std::atomic<bool> dropped{false};

  // The thread's that pulls it, then its taker's.
  std::vector<store::Reservation> blocks;
  RequestMetrics metrics;

  // Guarded by KvImports::mutex_.
  net::Channel* channel = nullptr;  // while a pull is under way
  std::optional<bool> whole;        // once it is settled
  std::function<void(std::unique_ptr<Parcel>)> then;
};

KvImports::KvImports(const KvContext& context, net::ChannelOptions channels)
    : context_(context), channel_options_(std::move(channels)) {}

KvImports::~KvImports() {
  std::vector<std::thread> threads;
  {
    MutexLock lock(mutex_);
    stopping_ = true;
    for (const auto& [handover, import] : imports_) {
      import->dropped.store(true);
      if (import->channel != nullptr) import->channel->interrupt();
    }
    changed_.notify_all();
    threads.swap(threads_);
  }
  for (std::thread& thread : threads) thread.join();
}

void KvImports::begin(std::uint64_t handover, const std::string& source, std::uint64_t tokens,
                      std::function<void()> on_taken) {
  auto import = std::make_shared<Import>();
  import->handover = handover;
  import->source = source;
  import->tokens = tokens;
  import->on_taken = std::move(on_taken);
  MutexLock lock(mutex_);
  if (stopping_ || !imports_.emplace(handover, import).second) return;
  waiting_.push_back(std::move(import));
  if (idle_threads_ < waiting_.size() && threads_.size() < kThreadsMax) threads_.emplace_back([this] { run(); });
  changed_.notify_one();
}

void KvImports::take(std::uint64_t handover, std::function<void(std::unique_ptr<Parcel>)> then) {
  std::unique_ptr<Parcel> parcel;
  {
    MutexLock lock(mutex_);
    const auto it = imports_.find(handover);
    if (it != imports_.end() && !it->second->whole) {
      it->second->then = std::move(then);
      return;
    }
    if (it != imports_.end()) {
      Import& import = *it->second;
      if (*import.whole)
        parcel = std::make_unique<ImportedParcel>(std::move(import.blocks), import.tokens, import.metrics);
      imports_.erase(it);
    }
  }
  then(std::move(parcel));
}

void KvImports::drop(std::uint64_t handover) {
  std::shared_ptr<Import> dropped;  // destroyed without the lock: its blocks go back by message
  std::function<void(std::unique_ptr<Parcel>)> then;
  {
    MutexLock lock(mutex_);
    const auto it = imports_.find(handover);
    if (it == imports_.end()) return;
    dropped = it->second;
    dropped->dropped.store(true);
    then = std::exchange(dropped->then, nullptr);
    if (dropped->channel != nullptr) dropped->channel->interrupt();
    imports_.erase(it);
    changed_.notify_all();
  }
  if (then) then(nullptr);
}

std::size_t KvImports::count() const {
  MutexLock lock(mutex_);
  return imports_.size();
}

// ---- a thread ----

void KvImports::run() {
  for (;;) {
    std::shared_ptr<Import> import;
    {
      MutexLock lock(mutex_);
      ++idle_threads_;
      while (!stopping_ && waiting_.empty()) changed_.wait(mutex_);
      --idle_threads_;
      if (stopping_) return;
      import = std::move(waiting_.front());
      waiting_.pop_front();
    }
    const Result<void> pulled = pull(*import);
    if (!pulled && !import->dropped.load())
      log_warning("hand-over {} from {} is lost, its KV is computed again: {}", import->handover, import->source,
                  pulled.error().message);
    settle(import, pulled.has_value());
  }
}

void KvImports::settle(const std::shared_ptr<Import>& import, bool whole) {
  import->on_taken();
  if (!whole) import->blocks.clear();
  std::function<void(std::unique_ptr<Parcel>)> then;
  std::unique_ptr<Parcel> parcel;
  {
    MutexLock lock(mutex_);
    import->whole = whole;
    if (!import->then) return;  // whoever takes it later will see
    then = std::move(import->then);
    if (whole) parcel = std::make_unique<ImportedParcel>(std::move(import->blocks), import->tokens, import->metrics);
    imports_.erase(import->handover);
  }
  then(std::move(parcel));
}

// All of its blocks at once: two that have half of theirs each would wait for each other.
Result<std::vector<store::Reservation>> KvImports::reserve(const Import& import) {
  const Stopwatch watch(*context_.clock);
  for (;;) {
    auto blocks = context_.store->reserve_blocks(context_.layout.blocks_for(import.tokens));
    if (blocks || blocks.error().code != ErrorCode::kResourceExhausted) return blocks;
    if (import.dropped.load()) return cancelled("hand-over {}: dropped", import.handover);
    if (watch.elapsed() >= context_.lease) return blocks;
    MutexLock lock(mutex_);  // memory comes back without a word to this thread
    changed_.wait_until(mutex_, std::chrono::steady_clock::now() + kRetryInterval);
  }
}

Result<std::unique_ptr<net::Channel>> KvImports::take_channel(const std::string& source) {
  {
    MutexLock lock(mutex_);
    Channels& idle = idle_[source];
    if (!idle.empty()) {
      std::unique_ptr<net::Channel> channel = std::move(idle.back());
      idle.pop_back();
      return channel;
    }
  }
  NMC_ASSIGN_OR_RETURN(const net::Address address, net::Address::parse(source));
  return net::Channel::connect(address, channel_options_);
}

Result<void> KvImports::pull(Import& import) {
  if (auto hit = failpoint("handover.import")) return Failure(*std::move(hit));
  const Stopwatch reserving(*context_.clock);
  NMC_ASSIGN_OR_RETURN(import.blocks, reserve(import));
  import.metrics.import_ms = reserving.elapsed_ms();
  NMC_ASSIGN_OR_RETURN(std::unique_ptr<net::Channel> channel, take_channel(import.source));
  {
    MutexLock lock(mutex_);
    import.channel = channel.get();
    if (import.dropped.load()) channel->interrupt();
  }
  Result<void> pulled = pull_from(import, *channel);
  MutexLock lock(mutex_);
  import.channel = nullptr;
  if (channel->usable() && !import.dropped.load()) idle_[import.source].push_back(std::move(channel));
  return pulled;
}

Result<void> KvImports::pull_from(Import& import, net::Channel& channel) {
  BlockSink sink(import.blocks);
  kv::SnapshotDecoder decoder(context_.layout, context_.ns, import.tokens, sink);
  std::vector<std::byte> received;
  Mapping shared;
  for (std::uint64_t offset = 0;;) {
    net::BodyWriter body;
    body.put_u64(import.handover).put_u64(offset);
    std::vector<net::MutableByteSpan> space(1);
    const auto place = [&](net::ByteSpan, std::uint64_t bytes) -> Result<std::span<const net::MutableByteSpan>> {
      if (bytes > (std::uint64_t{64} << 20)) return corrupt("hand-over: a piece of {} bytes", bytes);
      received.resize(bytes);
      space[0] = received;
      return std::span<const net::MutableByteSpan>(space);
    };
    const Stopwatch moving(*context_.clock);
    received.clear();
    NMC_ASSIGN_OR_RETURN(
        net::Channel::Reply reply,
        channel.call({.op = static_cast<std::uint16_t>(WorkerOp::kPull), .body = body.bytes()}, place));
    net::BodyReader reader = reply.reader();
    const PullReply pulled = get_pull_reply(reader);
    NMC_RETURN_IF_ERROR(reader.finish());
    if (pulled.state == PullState::kFailed) return unavailable("it isn't there (any more)");
    if (!reply.fds.empty()) {
      NMC_ASSIGN_OR_RETURN(shared,
                           Mapping::map(reply.fds[0].get(), pulled.total, Mapping::Access::kRead, "hand-over segment"));
    }
    import.metrics.transport_ms += std::max(0.0, moving.elapsed_ms() - to_ms(pulled.waited));
    net::ByteSpan piece = received;
    if (shared.size() > 0) {
      if (pulled.written > shared.size() || pulled.written < offset)
        return corrupt("hand-over: {} of {} bytes are said to be there", pulled.written, shared.size());
      piece = std::span<const std::byte>(std::as_const(shared).bytes()).subspan(offset, pulled.written - offset);
    }
    const Stopwatch unpacking(*context_.clock);
    NMC_RETURN_IF_ERROR(decoder.feed(piece));
    import.metrics.unpack_ms += unpacking.elapsed_ms();
    offset += piece.size();
    import.metrics.transfer_bytes = offset;
    if (pulled.state == PullState::kWhole && offset >= pulled.total) break;
    if (import.dropped.load()) return cancelled("hand-over {}: dropped", import.handover);
  }
  return decoder.finish();
}

}  // namespace nmc::engine
