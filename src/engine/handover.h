// KV from the worker that computed it to the worker that goes on with it.
//
// direct  blocks change hands: no bytes move
// shm     a snapshot in a shared-memory segment: one copy in, one copy out
// tcp     the same snapshot through a loopback socket
//
// The last two exist to be measured and to cross hosts; all three give the same bits.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "base/clock.h"
#include "base/hash.h"
#include "base/result.h"
#include "engine/runtime.h"
#include "engine/sequence.h"
#include "kv/layout.h"
#include "store/store.h"

namespace nmc::engine {

struct HandoverContext {
  kv::KvLayout layout;
  Digest ns;  // of the model without salt: both ends must agree on it
  store::Store* store = nullptr;
  const Clock* clock = nullptr;
  Nanos progress_deadline = std::chrono::seconds(10);  // a peer that moves no byte for so long is given up
};

// The taker's side of a hand-over.
class KvInlet {
 public:
  virtual ~KvInlet() = default;

  // Unpacks sequence.parcel into blocks: afterwards the sequence stands as it did before the hand-over, but for blocks
  // being its own where they were shared, and for KV that was lost, which will be computed again. kResourceExhausted:
  // no room now, the parcel is kept for another try. Any other error: all the KV is lost, and the sequence has neither
  // blocks nor parcel. On the taker's loop.
  virtual Result<void> receive(Sequence& sequence) = 0;
};

// send() is called by the prefill worker's loop, receive() by the decode worker's; each from one thread at a time.
class Handover : public KvInlet {
 public:
  // Takes the KV of the computed tokens out of `sequence` into sequence.parcel, and fills the sending stages of its
  // metrics. On failure the sequence keeps its blocks.
  virtual Result<void> send(Sequence& sequence) = 0;
};

Result<std::unique_ptr<Handover>> create_handover(Transfer transfer, HandoverContext context);

}  // namespace nmc::engine
