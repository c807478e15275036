// A master without doors for tests: its folder, its clock, and a reader as its clients have one.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/files.h"
#include "base/hash.h"
#include "store/master_core.h"
#include "store/shared_reader.h"

namespace nmc::store::testing {

class TestMaster {
 public:
  explicit TestMaster(CoreOptions options = {}) : options_(options) {
    if (options_.entries.initial == 0) options_.entries = {64, 4096};
    core_ = MasterCore::create(options_, SharedFiles::in_folder(path()).value(), clock_).value();
    open_reader();
  }
  ~TestMaster() { forget(); }

  // What remains of a master that died: the folder.
  void forget() {
    reader_.reset();
    core_.reset();
  }
  Result<MasterCore::Adopted> restart() {
    forget();
    MasterCore::Adopted adopted;
    NMC_ASSIGN_OR_RETURN(core_, MasterCore::adopt(options_, SharedFiles::in_folder(path()).value(), clock_, &adopted));
    open_reader();
    return adopted;
  }

  Path path() const { return folder_.path() / "store"; }
  MasterCore& core() { return *core_; }
  SharedStoreReader& reader() { return *reader_; }
  ManualClock& time() { return time_; }
  TouchClock& clock() { return clock_; }
  CoreOptions& options() { return options_; }

  std::uint32_t mount(std::string_view name, std::uint64_t bytes, std::uint32_t owner = 0) {
    return core_->mount(name, bytes, owner).value();
  }
  Result<MasterCore::Space> reserve(std::string_view content, MasterCore::Wish wish = {}) {
    wish.bytes = content.size();
    NMC_ASSIGN_OR_RETURN(const MasterCore::Space space, core_->reserve(wish));
    std::memcpy(space.bytes.data(), content.data(), content.size());
    return space;
  }
  Result<MasterCore::Held> commit(const MasterCore::Space& space, std::string_view key, MasterCore::Commit how = {}) {
    how.entry = space.entry;
    how.generation = space.generation;
    how.key = key;
    how.stamp = clock_.stamp();
    if (!how.checksum) how.checksum = checksum64(std::span<const std::byte>(space.bytes));
    return core_->commit(how);
  }
  Result<MasterCore::Held> put(std::string_view key, std::string_view content, MasterCore::Commit how = {},
                               MasterCore::Wish wish = {}) {
    NMC_ASSIGN_OR_RETURN(const MasterCore::Space space, reserve(content, wish));
    auto held = commit(space, key, how);
    if (!held) core_->abort(space.entry, space.generation);
    return held;
  }
  std::optional<std::string> get(std::string_view key) {
    const std::optional<Pin> pin = reader_->lookup(key);
    if (!pin) return std::nullopt;
    return std::string(reinterpret_cast<const char*>(pin->bytes().data()), pin->bytes().size());
  }
  StoreStats stats() {
    StoreStats stats;
    core_->fill_stats(stats);
    return stats;
  }

 private:
  void open_reader() {
    const PinTable* table = core_->add_client(Clients::Kind::kUser).value();
    reader_ = SharedStoreReader::open(core_->files_for(*table).value(), clock_).value();
  }

  CoreOptions options_;
  TemporaryFolder folder_ = TemporaryFolder::create("nmc-master").value();
  ManualClock time_;
  TouchClock clock_{time_};
  std::unique_ptr<MasterCore> core_;
  std::unique_ptr<SharedStoreReader> reader_;
};

}  // namespace nmc::store::testing
