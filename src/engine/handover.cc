#include "engine/handover.h"

#include "base/check.h"
#include "base/failpoint.h"
#include "engine/block_sink.h"
#include "kv/snapshot.h"
#include "transport/mover.h"

namespace nmc::engine {
namespace {

// ---- direct: the blocks themselves ----

class DirectParcel final : public Parcel {
 public:
  explicit DirectParcel(Sequence& from)
      : blocks_(std::move(from.blocks)), computed_(from.computed), published_(from.published) {
    from.blocks.clear();
    from.release_blocks();
  }

  std::size_t blocks() const override { return blocks_.size(); }

  void unpack(Sequence& to) {
    for (Block& block : blocks_) to.add_block(std::move(block));
    to.computed = computed_;
    to.published = published_;
  }

 private:
  std::vector<Block> blocks_;
  const std::size_t computed_;
  const std::size_t published_;
};

class DirectHandover final : public Handover {
 public:
  explicit DirectHandover(HandoverContext context) : context_(context) {}

  Result<void> send(Sequence& sequence) override {
    if (auto hit = failpoint("handover.send")) return Failure(*std::move(hit));
    const Stopwatch watch(*context_.clock);
    sequence.metrics.snapshot_bytes = context_.layout.blocks_for(sequence.computed) * context_.layout.block_bytes();
    sequence.metrics.transfer_carrier = "memory";
    sequence.parcel = std::make_unique<DirectParcel>(sequence);
    sequence.metrics.export_ms = watch.elapsed_ms();
    return {};
  }

  Result<void> receive(Sequence& sequence) override {
    const std::unique_ptr<Parcel> parcel = std::move(sequence.parcel);
    if (auto hit = failpoint("handover.receive")) return Failure(*std::move(hit));
    const Stopwatch watch(*context_.clock);
    static_cast<DirectParcel&>(*parcel).unpack(sequence);
    sequence.metrics.import_ms = watch.elapsed_ms();
    return {};
  }

 private:
  HandoverContext context_;
};

// ---- shm and tcp: a snapshot through a mover ----

class SnapshotParcel final : public Parcel {
 public:
  SnapshotParcel(transport::Mover& mover, std::uint64_t id, std::uint64_t tokens)
      : mover_(mover), id_(id), tokens_(tokens) {}
  ~SnapshotParcel() override {
    if (!taken_) mover_.discard(id_);
  }

  std::uint64_t tokens() const { return tokens_; }
  Result<transport::Buffer> take() {
    taken_ = true;
    return mover_.receive(id_);
  }

 private:
  transport::Mover& mover_;
  const std::uint64_t id_;
  const std::uint64_t tokens_;
  bool taken_ = false;
};

class SnapshotHandover final : public Handover {
 public:
  SnapshotHandover(HandoverContext context, std::unique_ptr<transport::Mover> mover)
      : context_(context), mover_(std::move(mover)) {}

  Result<void> send(Sequence& sequence) override {
    if (auto hit = failpoint("handover.send")) return Failure(*std::move(hit));
    RequestMetrics& metrics = sequence.metrics;
    const Stopwatch exporting(*context_.clock);
    const kv::SnapshotHeader header{.layout = context_.layout,
                                    .ns = context_.ns,
                                    .tokens = sequence.computed,
                                    .layers_per_span = context_.layout.layers};
    const std::vector<const std::byte*> blocks(
        sequence.addresses.begin(), sequence.addresses.begin() + static_cast<std::ptrdiff_t>(header.blocks()));
    metrics.export_ms = exporting.elapsed_ms();

    const Stopwatch encoding(*context_.clock);
    NMC_ASSIGN_OR_RETURN(transport::Buffer buffer, mover_->allocate(kv::snapshot_bytes(header)));
    kv::encode_snapshot(header, blocks, buffer.bytes());
    metrics.encode_ms = encoding.elapsed_ms();
    metrics.snapshot_bytes = buffer.bytes().size();

    const Stopwatch moving(*context_.clock);
    const std::uint64_t id = next_id_++;
    NMC_RETURN_IF_ERROR(mover_->send(id, std::move(buffer)));
    metrics.transport_ms = moving.elapsed_ms();
    metrics.transfer_carrier = mover_->carrier();
    sequence.parcel = std::make_unique<SnapshotParcel>(*mover_, id, sequence.computed);
    sequence.release_blocks();
    return {};
  }

  Result<void> receive(Sequence& sequence) override {
    RequestMetrics& metrics = sequence.metrics;
    auto& parcel = static_cast<SnapshotParcel&>(*sequence.parcel);
    const Stopwatch importing(*context_.clock);
    Result<std::vector<store::Reservation>> blocks =
        context_.store->reserve_blocks(context_.layout.blocks_for(parcel.tokens()));
    if (!blocks) return Failure(std::move(blocks).error());
    const double reserve_ms = importing.elapsed_ms();

    const std::unique_ptr<Parcel> opened = std::move(sequence.parcel);
    if (auto hit = failpoint("handover.receive")) return Failure(*std::move(hit));
    const Stopwatch moving(*context_.clock);
    NMC_ASSIGN_OR_RETURN(const transport::Buffer buffer, parcel.take());
    metrics.transport_ms += moving.elapsed_ms();
    metrics.transfer_bytes = buffer.bytes().size();

    const Stopwatch unpacking(*context_.clock);
    BlockSink sink(*blocks);
    kv::SnapshotDecoder decoder(context_.layout, context_.ns, parcel.tokens(), sink);
    NMC_RETURN_IF_ERROR(decoder.feed(buffer.bytes()));
    NMC_RETURN_IF_ERROR(decoder.finish());
    metrics.unpack_ms = unpacking.elapsed_ms();

    const Stopwatch placing(*context_.clock);
    for (store::Reservation& block : *blocks) sequence.add_block(Block(std::move(block)));
    sequence.computed = parcel.tokens();
    sequence.published = 0;  // blocks of its own: publishing replaces them by those that are known already
    metrics.import_ms = reserve_ms + placing.elapsed_ms();
    return {};
  }

 private:
  HandoverContext context_;
  std::unique_ptr<transport::Mover> mover_;
  std::uint64_t next_id_ = 1;
};

}  // namespace

Result<std::unique_ptr<Handover>> create_handover(Transfer transfer, HandoverContext context) {
  const transport::MoverOptions options{.progress_deadline = context.progress_deadline};
  switch (transfer) {
    case Transfer::kDirect: return std::make_unique<DirectHandover>(context);
    case Transfer::kShm: {
      NMC_ASSIGN_OR_RETURN(auto mover, transport::create_shm_mover(options));
      return std::make_unique<SnapshotHandover>(context, std::move(mover));
    }
    case Transfer::kTcp: {
      NMC_ASSIGN_OR_RETURN(auto mover, transport::create_tcp_mover(options));
      return std::make_unique<SnapshotHandover>(context, std::move(mover));
    }
  }
  return internal_error("transfer {}", static_cast<int>(transfer));
}

}  // namespace nmc::engine
