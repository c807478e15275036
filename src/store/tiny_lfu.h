// Admission by frequency (TinyLFU, Einziger and others, 2017): least recently used goes first, but a newcomer that was
// used less often lately than what would go for it goes itself. One that was used as often is let in.
#pragma once

#include <cstdint>
#include <vector>

#include "store/eviction.h"
#include "store/frequency_sketch.h"
#include "store/id_list.h"
#include "store/lru.h"

namespace nmc::store {

class TinyLfuPolicy final : public EvictionPolicy {
 public:
  // About `capacity` things are going to be here.
  explicit TinyLfuPolicy(std::size_t capacity) : sketch_(capacity) {}

  void insert(Id id, Stamp stamp, const Use& use) override;
  void touch(Id id, Stamp stamp, const Use& use) override;
  void erase(Id id) override;
  std::optional<Candidate> victim() override;
  bool contains(Id id) const override { return lru_.contains(id); }
  Stamp stamp_of(Id id) const override { return lru_.stamp_of(id); }
  std::size_t size() const override { return lru_.size(); }

 private:
  LruPolicy lru_;
  FrequencySketch sketch_;
  std::vector<std::uint64_t> keys_;          // by id
  std::uint32_t newcomer_ = IdLinks::kNone;  // the last that came, if it is still here
};

}  // namespace nmc::store
