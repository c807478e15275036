// A put of which the bytes come bit by bit, by several calls, before the object is there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "base/files.h"
#include "base/mutex.h"
#include "base/result.h"
#include "objects.h"
#include "store/client.h"

namespace nmc::python {

// Thread-safe; not to be called with the interpreter lock, since calls wait for one another. The bytes lie in memory of
// this process until commit() stores them; those that nobody wrote are 0.
class StagedPut {
 public:
  // Error: no memory for so many bytes.
  static Result<std::shared_ptr<StagedPut>> create(std::uint64_t bytes, const Keep& keep);
  StagedPut(Mapping memory, const Keep& keep) : keep_(keep), memory_(std::move(memory)) {}
  StagedPut(const StagedPut&) = delete;
  StagedPut& operator=(const StagedPut&) = delete;

  struct Range {
    std::uint64_t offset = 0;
    std::span<const std::byte> from;
  };
  // The number of bytes written; kInvalidParams for a range beyond the end, and once the object is stored.
  store::Outcome write(std::span<const Range> ranges) NMC_EXCLUDES(mutex_);
  // Stores the object under `key`, after the writes in flight. 0, after which it can't be written any more; else a
  // code, and everything is as before.
  store::Outcome commit(store::Client& client, std::string_view key) NMC_EXCLUDES(mutex_);

 private:
  const Keep keep_;
  Mutex mutex_;
  Mapping memory_ NMC_GUARDED_BY(mutex_);
  bool stored_ NMC_GUARDED_BY(mutex_) = false;
};

}  // namespace nmc::python
