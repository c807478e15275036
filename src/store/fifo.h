// What came first goes first, however often it was used since.
#pragma once

#include <vector>

#include "store/eviction.h"
#include "store/id_list.h"

namespace nmc::store {

class FifoPolicy final : public EvictionPolicy {
 public:
  void insert(Id id, Stamp stamp, const Use& use) override;
  void touch(Id id, Stamp stamp, const Use& use) override;
  void erase(Id id) override;
  std::optional<Candidate> victim() override;
  bool contains(Id id) const override { return id < items_.size() && items_[id].here; }
  Stamp stamp_of(Id id) const override { return items_[id].stamp; }
  std::size_t size() const override { return list_.size(); }

 private:
  struct Item {
    Stamp stamp = 0;
    bool here = false;
  };
  std::vector<Item> items_;  // by id
  IdLinks links_;
  IdList list_{links_};
};

}  // namespace nmc::store
