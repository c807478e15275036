// Messages in shared-memory segments of their own: the sender maps one for writing, the receiver maps the same pages
// again for reading, as another process would.
#include <atomic>
#include <unordered_map>

#include "base/failpoint.h"
#include "base/mutex.h"
#include "transport/mover.h"

namespace nmc::transport {
namespace {

class ShmMover final : public Mover {
 public:
  explicit ShmMover(MoverOptions options) : options_(options) {}

  const char* carrier() const override { return "shm"; }

  Result<Buffer> allocate(std::size_t size) override {
    if (size > options_.message_bytes_max) {
      return invalid_argument("message of {} bytes, expected at most {}", size, options_.message_bytes_max);
    }
    NMC_ASSIGN_OR_RETURN(UniqueFd fd, create_memfd("nmc-handover", size));
    NMC_ASSIGN_OR_RETURN(Mapping mapping,
                         Mapping::map(fd.get(), size, Mapping::Access::kReadWrite, "hand-over segment"));
    return Buffer(std::move(fd), std::move(mapping));
  }

  Result<void> send(std::uint64_t id, Buffer buffer) override {
    if (auto hit = failpoint("transport.shm.send")) return Failure(*std::move(hit));
    MutexLock lock(mutex_);
    ++counters_.messages_sent;
    counters_.bytes_sent += buffer.bytes().size();
    sent_.insert_or_assign(id, std::move(buffer));
    return {};
  }

  Result<Buffer> receive(std::uint64_t id) override {
    if (auto hit = failpoint("transport.shm.receive")) {
      discard(id);
      return Failure(*std::move(hit));
    }
    Buffer sent;
    {
      MutexLock lock(mutex_);
      const auto it = sent_.find(id);
      if (it == sent_.end()) return unavailable("shm message {} was never sent or was dropped", id);
      sent = std::move(it->second);
      sent_.erase(it);
    }
    const std::size_t size = sent.bytes().size();
    NMC_ASSIGN_OR_RETURN(Mapping view, Mapping::map(sent.fd(), size, Mapping::Access::kRead, "hand-over segment"));
    MutexLock lock(mutex_);
    ++counters_.messages_received;
    counters_.bytes_received += size;
    return Buffer(UniqueFd(), std::move(view));
  }

  void discard(std::uint64_t id) override {
    MutexLock lock(mutex_);
    sent_.erase(id);
  }

  MoverCounters counters() const override {
    MutexLock lock(mutex_);
    return counters_;
  }

 private:
  const MoverOptions options_;
  mutable Mutex mutex_;
  std::unordered_map<std::uint64_t, Buffer> sent_ NMC_GUARDED_BY(mutex_);
  MoverCounters counters_ NMC_GUARDED_BY(mutex_);
};

}  // namespace

Result<std::unique_ptr<Mover>> create_shm_mover(MoverOptions options) { return std::make_unique<ShmMover>(options); }

}  // namespace nmc::transport
