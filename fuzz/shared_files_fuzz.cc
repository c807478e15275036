// The files that a dead master left, with words of them changed: the next master refuses them or adopts what holds
// together, readers stay within bounds, and what is put from then on is right. The input is a list of changes: file u8,
// place u16, new word u64.
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/files.h"
#include "base/hash.h"
#include "base/log.h"
#include "store/master_core.h"
#include "store/shared_reader.h"

namespace nmc::store {
namespace {

constexpr std::size_t kSegmentBytes = 4096;

std::span<const std::byte> bytes_of(const std::string& text) { return std::as_bytes(std::span(text)); }

CoreOptions options() {
  CoreOptions options;
  options.entries = {16, 32};
  return options;
}

// A store with objects of all kinds in two segments, as its master leaves it.
class DeadStore {
 public:
  DeadStore() {
    const Path folder = folder_.path() / "store";
    const auto core = MasterCore::create(options(), SharedFiles::in_folder(folder).value(), clock_).value();
    for (const char* name : {"a", "b"}) core->mount(name, kSegmentBytes, 0).value();
    for (int i = 0; i < 8; ++i) {
      const std::string key = (i % 4 == 3 ? std::string(90, 'k') : "key") + std::to_string(i);
      values_[key] = std::string(40 + 30 * static_cast<std::size_t>(i), static_cast<char>('a' + i));
      put(*core, key, values_[key], i);
    }
    core->remove("key2");
    values_.erase("key2");
    core->reserve({.bytes = 100}).value();
    for (const char* name : {"index", "segment.0", "segment.1"})
      files_.emplace_back(name, read_file(folder / name).value());
  }

  // Writes the files, changed as `input` says, to `folder`.
  void write(const Path& folder, std::span<const std::uint8_t> input) const {
    SharedFiles files = SharedFiles::in_folder(folder).value();
    std::vector<std::string> contents;
    for (const auto& file : files_) contents.push_back(file.second);
    for (std::size_t at = 0; at + 11 <= input.size(); at += 11) {
      std::string& content = contents[input[at] % contents.size()];
      std::uint16_t word;
      std::memcpy(&word, &input[at + 1], 2);
      const std::size_t offset = std::size_t{word} * 8 % content.size();
      std::memcpy(&content[offset], &input[at + 3], std::min<std::size_t>(8, content.size() - offset));
    }
    for (std::size_t i = 0; i < contents.size(); ++i) {
      const UniqueFd fd = files.create(files_[i].first, contents[i].size()).value();
      NMC_ASSERT(::pwrite(fd.get(), contents[i].data(), contents[i].size(), 0) ==
                 static_cast<ssize_t>(contents[i].size()));
    }
  }

  const std::map<std::string, std::string>& values() const { return values_; }
  TouchClock& clock() { return clock_; }

 private:
  void put(MasterCore& core, const std::string& key, const std::string& value, int i) {
    MasterCore::Wish wish;
    wish.bytes = value.size();
    const auto space = core.reserve(wish).value();
    std::memcpy(space.bytes.data(), value.data(), value.size());
    const std::vector<std::uint16_t> used = {space.at.segment};
    wish.avoid = used;
    const auto copy = core.reserve(wish).value();
    std::memcpy(copy.bytes.data(), value.data(), value.size());
    const MasterCore::Held copies[] = {{copy.entry, copy.generation}};
    MasterCore::Commit commit;
    commit.entry = space.entry;
    commit.generation = space.generation;
    commit.key = key;
    commit.checksum = checksum64(bytes_of(value));
    commit.soft_pin = i == 1 ? SoftPin::kPin : SoftPin::kKeep;
    commit.hard_pin = i == 4;
    if (i % 3 == 0)
      commit.copies = copies;
    else
      core.abort(copy.entry, copy.generation);
    NMC_ASSERT(core.commit(commit));
  }

  ManualClock time_;
  TouchClock clock_{time_};
  TemporaryFolder folder_ = TemporaryFolder::create("nmc-fuzz").value();
  std::map<std::string, std::string> values_;
  std::vector<std::pair<std::string, std::string>> files_;
};

void adopt(DeadStore& dead, const Path& folder) {
  const auto core = MasterCore::adopt(options(), SharedFiles::in_folder(folder).value(), dead.clock());
  if (!core) return;
  const PinTable* table = (*core)->add_client(Clients::Kind::kUser).value();
  const auto reader = SharedStoreReader::open((*core)->files_for(*table).value(), dead.clock()).value();
  for (const auto& [key, value] : dead.values()) {
    (void)reader->probe(key);
    (void)reader->lookup(key);
    (void)(*core)->replicas(key);
  }
  (void)(*core)->keys();
  // It works on: objects come and go until all that was there was evicted once.
  for (int i = 0; i < 200; ++i) {
    const auto space = (*core)->reserve({.bytes = 64});
    if (!space) break;
    std::memset(space->bytes.data(), i, space->bytes.size());
    MasterCore::Commit commit;
    commit.entry = space->entry;
    commit.generation = space->generation;
    const std::string key = "new" + std::to_string(i);
    commit.key = key;
    commit.stamp = dead.clock().stamp();
    commit.checksum = checksum64(std::span<const std::byte>(space->bytes));
    if (!(*core)->commit(commit)) (*core)->abort(space->entry, space->generation);
    const auto pin = reader->lookup(key);
    if (pin) NMC_ASSERT(pin->bytes()[63] == static_cast<std::byte>(i), "object {} has another's bytes", i);
  }
}

}  // namespace
}  // namespace nmc::store

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static nmc::store::DeadStore dead;
  static const nmc::TemporaryFolder folder = nmc::TemporaryFolder::create("nmc-fuzz-run").value();
  nmc::set_log_level(nmc::LogLevel::kOff);
  const nmc::Path store = folder.path() / "store";
  dead.write(store, {data, size});
  nmc::store::adopt(dead, store);
  return 0;
}
