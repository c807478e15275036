// A store whose master lives in this process, on a memfd: no socket, no other process that it depends on.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "store/master_core.h"
#include "store/shared_reader.h"
#include "store/store.h"
#include "store/tiers.h"

namespace nmc::store {

// Thread-safe.
class EmbeddedStore final : public Store {
 public:
  static Result<std::unique_ptr<EmbeddedStore>> create(StoreOptions options);
  ~EmbeddedStore() override;

  Result<Reservation> reserve(ObjectClass object_class, std::size_t bytes) override;
  Result<std::vector<Reservation>> reserve_blocks(std::size_t count) override;
  std::size_t blocks_total() const override;
  // Blocks that reserve_blocks could get now: free plus evictable.
  std::size_t blocks_available() const;

  Result<Pin> commit(Reservation&& reservation, std::string_view key) override;
  Result<void> put(ObjectClass object_class, std::string_view key, std::span<const std::byte> bytes) override;

  std::optional<Pin> lookup(std::string_view key) override;
  std::optional<Pin> fetch(std::string_view key, ObjectClass object_class, std::size_t bytes = 0) override;
  Run fetch_run(std::span<const std::string> keys) override;
  std::size_t probe_run(std::span<const std::string> keys) const override;
  void touch_run(std::span<const Pin> chain) override;
  bool remove(std::string_view key) override;
  Result<void> flush() override;
  StoreStats stats() const override;
  std::uint64_t held() const override;

  // Lets another process read: a pin table of its own, and the files that SharedStoreReader::open maps. Segments are
  // opened through this store, so in this process or a forked child.
  Result<ClientFiles> add_client();
  // The client is gone for good: what it had pinned no longer is.
  void drop_client(std::uint32_t client);

 private:
  explicit EmbeddedStore(StoreOptions options) : Store(std::move(options)), clock_(*options_.clock) {}
  Result<void> start();
  void give_back(const Reservation::Parts& parts) override;

  Reservation reservation_of(const MasterCore::Space& space, ObjectClass object_class);
  // `checksum`: of the bytes, where the writer has it.
  Result<Pin> commit_as(Reservation& reservation, std::string_view key, std::optional<std::uint64_t> checksum);
  std::optional<Pin> find(std::string_view key);  // lookup() that counts nothing
  std::size_t restore_blocks(std::span<const std::string> keys, std::span<std::optional<Pin>> found, std::string* why);

  TouchClock clock_;
  std::unique_ptr<MasterCore> master_;
  std::unique_ptr<SharedStoreReader> reader_;  // the lookups of this process: a client like any other
  std::unique_ptr<Tiers> tiers_;
};

}  // namespace nmc::store
