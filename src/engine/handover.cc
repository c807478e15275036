#include "engine/handover.h"

#include "base/check.h"

namespace nmc::engine {
namespace {

// The blocks themselves.
class DirectParcel final : public Parcel {
 public:
  explicit DirectParcel(Sequence& from)
      : blocks(std::move(from.blocks)), computed(from.computed), published(from.published) {
    from.blocks.clear();
    from.release_blocks();
  }
  std::vector<Block> blocks;
  std::size_t computed;
  std::size_t published;
};

class DirectHandover final : public Handover {
 public:
  explicit DirectHandover(HandoverContext context) : context_(context) {}

  Result<void> send(Sequence& sequence) override {
    const Stopwatch watch(*context_.clock);
    sequence.metrics.snapshot_bytes = sequence.blocks.size() * context_.layout.block_bytes();
    sequence.parcel = std::make_unique<DirectParcel>(sequence);
    sequence.metrics.export_ms = watch.elapsed_ms();
    sequence.metrics.transfer_carrier = "memory";
    return {};
  }

  Result<void> receive(Sequence& sequence) override {
    const Stopwatch watch(*context_.clock);
    auto& parcel = static_cast<DirectParcel&>(*sequence.parcel);
    for (Block& block : parcel.blocks) sequence.add_block(std::move(block));
    sequence.computed = parcel.computed;
    sequence.published = parcel.published;
    sequence.parcel.reset();
    sequence.metrics.import_ms = watch.elapsed_ms();
    return {};
  }

 private:
  HandoverContext context_;
};

}  // namespace

Result<std::unique_ptr<Handover>> create_handover(Transfer transfer, HandoverContext context) {
  switch (transfer) {
    case Transfer::kDirect: return std::make_unique<DirectHandover>(context);
    default: return unsupported("transfer {}", transfer_name(transfer));
  }
}

}  // namespace nmc::engine
