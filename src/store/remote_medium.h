// Another node's store as a tier's medium: what several hosts have computed, over TCP (or shared memory, where it turns
// out to be on this host).
//
// It takes KV blocks and tails, which their keys name by content, so that no two writers can mean different bytes. A
// store that doesn't answer in time costs one error and is then left alone for a while: all is a miss meanwhile.
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "store/client.h"
#include "store/silence.h"
#include "store/tier_medium.h"

namespace nmc::store {

// Thread-safe.
class RemoteMedium final : public TierMedium {
 public:
  // What is waited for is this medium's to choose, the deadlines of `options` aren't used. Fails when the store can't
  // be reached now. `clock` outlives it.
  static Result<std::unique_ptr<RemoteMedium>> connect(ClientOptions options, const Clock& clock);

  const char* name() const override { return "remote"; }
  Source source() const override { return Source::kRemote; }
  bool takes(ObjectClass object_class) const override { return object_class != ObjectClass::kObject; }
  std::optional<std::uint64_t> known_size(std::string_view) const override { return std::nullopt; }
  std::vector<std::string> known_keys() const override { return {}; }
  bool is_shared() const override { return true; }
  std::optional<std::uint64_t> size_of(std::string_view key) override;
  std::size_t probe_run(std::span<const std::string> keys, std::uint64_t bytes) override;
  std::size_t read(std::span<const TierRead> reads, std::string* why) override;
  std::size_t reads_at_once() const override { return 32; }
  Result<void> append(std::span<const TierItem> items) override;
  std::uint64_t append_bytes_max() const override { return std::uint64_t{16} << 20; }
  Result<void> remove(std::string_view key) override;
  void fill_stats(StoreStats& stats) const override;

 private:
  RemoteMedium(std::string server, std::unique_ptr<Client> client, const Clock& clock);

  // Whether the store answered; if not, it is left alone from now on.
  bool note(Outcome outcome);
  std::vector<Outcome> ask_exists(std::span<const std::string_view> keys);

  const std::string server_;
  const std::unique_ptr<Client> client_;
  Silence silence_;
  std::atomic<std::uint64_t> read_bytes_{0}, written_bytes_{0}, errors_{0};
};

}  // namespace nmc::store
