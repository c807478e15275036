#include "staged_put.h"

#include <cstring>
#include <utility>

namespace nmc::python {

using store::Outcome;
using store::outcome_of;
using store::StoreCode;

Result<std::shared_ptr<StagedPut>> StagedPut::create(std::uint64_t bytes, const Keep& keep) {
  NMC_ASSIGN_OR_RETURN(Mapping memory, Mapping::anonymous(bytes));
  return std::make_shared<StagedPut>(std::move(memory), keep);
}

Outcome StagedPut::write(std::span<const Range> ranges) {
  const MutexLock lock(mutex_);
  Outcome written = 0;
  for (const Range& range : ranges) {
    if (range.offset > memory_.size() || range.from.size() > memory_.size() - range.offset) {
      return outcome_of(StoreCode::kInvalidParams);
    }
    written += static_cast<Outcome>(range.from.size());
  }
  if (stored_) return outcome_of(StoreCode::kInvalidParams);
  for (const Range& range : ranges) std::memcpy(memory_.data() + range.offset, range.from.data(), range.from.size());
  return written;
}

Outcome StagedPut::commit(store::Client& client, std::string_view key) {
  const MutexLock lock(mutex_);
  if (stored_) return outcome_of(StoreCode::kInvalidParams);
  const std::span<const std::byte> bytes(memory_.data(), memory_.size());
  const store::Client::Put put{key, {&bytes, 1}};
  Outcome outcome = outcome_of(StoreCode::kInternalError);
  client.put({&put, 1}, keep_.options, {&outcome, 1});
  stored_ = outcome == outcome_of(StoreCode::kOk);
  return outcome;
}

}  // namespace nmc::python
