// What a new master makes of the files that a dead one left.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <map>

#include "base/rng.h"
#include "store/master_test_support.h"

namespace nmc::store {
namespace {

using ::testing::IsEmpty;
using ::testing::Optional;
using testing::TestMaster;
using ::testing::UnorderedElementsAre;

// The index file of a dead master, to be spoilt.
class DeadIndex {
 public:
  explicit DeadIndex(const Path& folder) {
    const UniqueFd fd(::open((folder / "index").c_str(), O_RDWR | O_CLOEXEC));
    mapping_ =
        Mapping::map(fd.get(), nmc::file_size(folder / "index").value(), Mapping::Access::kReadWrite, "index").value();
  }
  IndexHeader& header() { return *reinterpret_cast<IndexHeader*>(mapping_.data()); }
  struct Entry {
    IndexEntry& first;
    IndexEntryRest& rest;
  };
  Entry entry(std::size_t number) {
    auto* entries = reinterpret_cast<IndexEntry*>(mapping_.data() + header().entries_offset);
    return {entries[number], reinterpret_cast<IndexEntryRest*>(entries + header().entry_count)[number]};
  }
  Entry entry_of(std::string_view key) {
    for (std::uint32_t i = 0; i < header().entries_ready; ++i) {
      const Entry one = entry(i);
      if (one.rest.key_hash == checksum64(key) && state_of(one.first.commit) == EntryState::kCommitted) return one;
    }
    ADD_FAILURE() << "no entry of " << key;
    return entry(0);
  }

 private:
  Mapping mapping_;
};

TEST(MasterAdopt, WhatWasCommittedIsThereAndNothingElse) {
  TestMaster master({.entries = {8, 4096}});
  master.mount("a", 1 << 16);
  master.mount("b", 1 << 16);
  std::map<std::string, std::string> model;
  Rng rng(5);
  for (int i = 0; i < 600; ++i) {
    const std::string key = (i % 7 == 0 ? std::string(100, 'k') : "k") + std::to_string(rng.below(300));
    if (rng.below(4) == 0) {
      master.core().remove(key);
      model.erase(key);
    } else {
      const std::string value(1 + rng.below(100), static_cast<char>('a' + i % 26));
      ASSERT_TRUE(master.put(key, value, {.replace = true}));
      model[key] = value;
    }
  }
  ASSERT_TRUE(master.reserve("never committed"));
  const StoreStats before = master.stats();
  const auto adopted = master.restart().value();
  EXPECT_EQ(adopted.objects, model.size());
  EXPECT_EQ(adopted.segments, 2u);
  EXPECT_EQ(adopted.reservations, 0u);
  EXPECT_EQ(adopted.clients, 0u);
  EXPECT_EQ(adopted.dropped_entries, 0u);
  for (const auto& [key, value] : model) EXPECT_THAT(master.get(key), Optional(value)) << key;
  EXPECT_EQ(master.stats().objects, model.size());
  EXPECT_EQ(master.stats().used_bytes, before.used_bytes - 64);
  // And it goes on: new objects, evictions, another restart.
  for (int i = 0; i < 3000; ++i) ASSERT_TRUE(master.put("n" + std::to_string(i), std::string(64, 'n')));
  EXPECT_GT(master.stats().evicted_objects, 0u);
  const std::uint64_t objects = master.stats().objects;
  EXPECT_EQ(master.restart()->objects, objects);
}

TEST(MasterAdopt, GenerationsGoOn) {
  TestMaster master;
  master.mount("a", 4096);
  const std::uint64_t before = master.put("k", "v")->generation;
  const std::uint64_t reserved = master.reserve("v")->generation;
  ASSERT_TRUE(master.restart());
  EXPECT_GT(master.put("l", "v")->generation, std::max(before, reserved));
  EXPECT_EQ(master.core().index().epoch(), 2u);
}

TEST(MasterAdopt, PinsOfTheDeadHoldNothing) {
  TestMaster master;
  master.mount("a", 64);
  ASSERT_TRUE(master.put("k", "v"));
  const PinTable* table = master.core().add_client(Clients::Kind::kUser).value();
  auto other = SharedStoreReader::open(master.core().files_for(*table).value(), master.clock()).value();
  const std::optional<Pin> pin = other->lookup("k");
  ASSERT_TRUE(pin);
  ASSERT_TRUE(master.restart());
  EXPECT_TRUE(master.put("l", "v"));  // takes the only place there is
}

// A client in a process of its own, as clients are: with its table locked, a pin on "k" and a reservation.
class Child {
 public:
  explicit Child(TestMaster& master) {
    const PinTable* table = master.core().add_client(Clients::Kind::kUser).value();
    client_ = table->client();
    ClientFiles files = master.core().files_for(*table).value();
    EXPECT_EQ(::pipe2(ready_.data(), O_CLOEXEC), 0);
    pid_ = ::fork();
    if (pid_ == 0) {
      auto reader = SharedStoreReader::open(std::move(files), master.clock());
      if (!reader || !(*reader)->lock_for_life()) ::_exit(1);
      const auto pin = (*reader)->lookup("k");
      if (!pin || ::write(ready_[1], "r", 1) != 1) ::_exit(2);
      ::pause();
      ::_exit(0);
    }
    char byte = 0;
    EXPECT_EQ(::read(ready_[0], &byte, 1), 1);
  }
  ~Child() {
    kill();
    ::close(ready_[0]);
    ::close(ready_[1]);
  }
  void kill() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }
  std::uint32_t client() const { return client_; }

 private:
  std::array<int, 2> ready_{};
  pid_t pid_ = -1;
  std::uint32_t client_ = 0;
};

TEST(MasterAdopt, LivingClientsKeepTheirPinsAndReservations) {
  TestMaster master;
  master.mount("a", 4 * 64);
  ASSERT_TRUE(master.put("k", "pinned"));
  Child child(master);
  const auto theirs = master.reserve("theirs", {.client = child.client()}).value();
  ASSERT_TRUE(master.reserve("ours"));
  const auto adopted = master.restart().value();
  EXPECT_EQ(adopted.clients, 1u);
  EXPECT_EQ(adopted.reservations, 1u);
  EXPECT_EQ(master.core().remove("k"), MasterCore::Removal::kRemoved);
  EXPECT_EQ(master.stats().limbo_bytes, 64u);
  // Again, with the object dying while the child has it.
  EXPECT_EQ(master.restart()->objects, 0u);
  EXPECT_EQ(master.stats().limbo_bytes, 64u);
  EXPECT_EQ(master.stats().used_bytes, 2 * 64u);
  const auto committed = master.core().commit({.entry = theirs.entry, .generation = theirs.generation, .key = "l"});
  EXPECT_TRUE(committed);
  EXPECT_THAT(master.get("l"), Optional(std::string("theirs")));
  child.kill();
  EXPECT_EQ(master.restart()->clients, 0u);
  EXPECT_EQ(master.stats().limbo_bytes, 0u);
  EXPECT_EQ(master.stats().used_bytes, 64u);
}

TEST(MasterAdopt, AParkedSegmentStaysParked) {
  TestMaster master;
  const std::uint32_t number = master.mount("host:1", 4096, 5);
  for (const char* key : {"k", "removed"}) ASSERT_TRUE(master.put(key, "v"));
  ASSERT_TRUE(master.core().park(number));
  EXPECT_EQ(master.restart()->objects, 0u);
  EXPECT_EQ(master.get("k"), std::nullopt);
  EXPECT_EQ(master.core().remove("removed"), MasterCore::Removal::kAbsent);
  master.core().keep_house(std::chrono::seconds(10));  // its time begins anew
  EXPECT_EQ(master.mount("host:2", 4096, 6), number);
  EXPECT_THAT(master.get("k"), Optional(std::string("v")));
  EXPECT_EQ(master.get("removed"), std::nullopt) << "it must not come back with its owner";
}

TEST(MasterAdopt, AReplacementThatWasCutOffLeavesTheNewer) {
  TestMaster master;
  master.mount("a", 4096);
  ASSERT_TRUE(master.put("k", "older"));
  ASSERT_TRUE(master.put("other", "newer"));
  master.forget();
  {
    DeadIndex index(master.path());
    const auto from = index.entry_of("k");
    const auto to = index.entry_of("other");  // as if it were k's next object, published before the old one went
    to.rest.key_hash.store(from.rest.key_hash.load());
    to.first.extent.store(from.first.extent.load());
    for (std::size_t i = 0; i < kFirstKeyWords; ++i) to.first.key[i].store(from.first.key[i].load());
  }
  EXPECT_EQ(master.restart()->objects, 1u);
  EXPECT_THAT(master.get("k"), Optional(std::string("newer")));
  EXPECT_THAT(master.core().keys(), UnorderedElementsAre("k"));
}

TEST(MasterAdopt, DamagedEntriesAreDroppedAndHideNothingElse) {
  using Entry = DeadIndex::Entry;
  struct Case {
    const char* what;
    std::function<void(Entry)> damage;
    std::size_t dropped = 1;
  };
  const auto with_extent = [](const std::function<void(EntryExtent&)>& change) {
    return [change](Entry e) {
      EntryExtent extent = unpack_extent(e.first.extent.load());
      change(extent);
      e.first.extent.store(pack_extent(extent));
    };
  };
  const auto with_location = [](Location at) { return [at](Entry e) { e.first.location.store(pack_location(at)); }; };
  const std::vector<Case> cases = {
      {"offset outside", with_location({0, 1 << 20})},
      {"offset at the end", with_location({0, 4096})},
      {"offset unaligned", [](Entry e) { e.first.location.store(e.first.location.load() + 1); }},
      {"segment unknown", with_location({9, 0})},
      {"size 0", with_extent([](EntryExtent& extent) { extent.bytes = 0; })},
      {"size beyond the segment", with_extent([](EntryExtent& extent) { extent.bytes = (1ull << 47) - 1; })},
      {"class unknown", [](Entry e) { e.rest.meta.store(e.rest.meta.load() | 0xff); }},
      {"key of 0 bytes", with_extent([](EntryExtent& extent) { extent.key_bytes = 0; })},
      {"key of 65535 bytes", with_extent([](EntryExtent& extent) { extent.key_bytes = 65535; })},
      {"key reference outside", with_extent([](EntryExtent& extent) { extent.key_bytes = 100; })},
      {"key other than its hash", [](Entry e) { e.first.key[0].store(1); }, 0},
      {"hash other than the key's", [](Entry e) { e.rest.key_hash.store(1); }, 0},
  };
  for (const Case& one : cases) {
    TestMaster master;
    master.mount("a", 4096);
    for (const char* key : {"x", "k", "y"}) ASSERT_TRUE(master.put(key, std::string("value of ") + key));
    master.forget();
    {
      DeadIndex index(master.path());
      one.damage(index.entry_of("k"));
    }
    const auto adopted = master.restart().value();
    EXPECT_EQ(adopted.dropped_entries, one.dropped) << one.what;
    EXPECT_EQ(adopted.objects, 2u) << one.what;
    EXPECT_THAT(master.get("k"), std::nullopt) << one.what;
    for (const std::string key : {"x", "y"}) EXPECT_THAT(master.get(key), Optional("value of " + key)) << one.what;
    EXPECT_EQ(master.stats().used_bytes, 2 * 64u) << one.what;
  }
}

TEST(MasterAdopt, EntriesThatOverlapAreDroppedAllOfThem) {
  TestMaster master;
  master.mount("a", 4096);
  for (const char* key : {"a", "b", "c", "d"}) ASSERT_TRUE(master.put(key, std::string(64, *key)));
  master.forget();
  {
    DeadIndex index(master.path());
    // From the lowest, long enough to reach into the next two.
    IndexEntry* lowest = &index.entry_of("a").first;
    for (const char* key : {"b", "c", "d"}) {
      IndexEntry& other = index.entry_of(key).first;
      if (other.location.load() < lowest->location.load()) lowest = &other;
    }
    lowest->extent.store(pack_extent({.bytes = 3 * 64, .key_bytes = 1}));
  }
  const auto adopted = master.restart().value();
  EXPECT_EQ(adopted.dropped_entries, 3u);
  EXPECT_EQ(adopted.objects, 1u);
}

TEST(MasterAdopt, SlotsAndFreeEntriesOfADeadMasterAreNotBelieved) {
  TestMaster master;
  master.mount("a", 4096);
  ASSERT_TRUE(master.put("k", "v"));
  master.forget();
  {
    DeadIndex index(master.path());
    auto* slots =
        reinterpret_cast<SharedWord*>(reinterpret_cast<std::byte*>(&index.header()) + index.header().slots_offset);
    for (std::uint32_t i = 0; i < 2 * index.header().first_slot_count; ++i) slots[i].store(0x123456789abcdef + i);
    index.header().table_word.store(~std::uint64_t{0});
  }
  ASSERT_TRUE(master.restart());
  EXPECT_THAT(master.get("k"), Optional(std::string("v")));
  for (int i = 0; i < 1000; ++i) ASSERT_TRUE(master.put("k" + std::to_string(i), "v"));
}

TEST(MasterAdopt, FilesThatNobodyCanUseAreRemoved) {
  TestMaster master;
  master.mount("a", 4096);
  const std::uint32_t lost = master.mount("lost", 4096);
  ASSERT_TRUE(master.put("k", "v", {}, {}));
  master.forget();
  for (const char* name : {"pins.77", "segment.9", "segment.x"})
    ASSERT_TRUE(write_file_atomic(master.path() / name, "?"));
  std::filesystem::remove(master.path() / Segment::file_name(lost));
  const auto adopted = master.restart().value();
  EXPECT_EQ(adopted.segments, 1u);
  std::vector<std::string> names;
  for (const auto& file : std::filesystem::directory_iterator(master.path())) names.push_back(file.path().filename());
  EXPECT_THAT(names, UnorderedElementsAre("index", "segment.0", "segment.x", "pins.1"));
}

TEST(MasterAdopt, AnIndexThatIsNotOursIsRefusedAndLeftAlone) {
  TestMaster master;
  EXPECT_EQ(MasterCore::adopt({}, SharedFiles::in_memory(), master.clock()).error().code, ErrorCode::kNotFound);
  master.forget();
  ASSERT_TRUE(write_file_atomic(master.path() / "index", std::string(20'000, 'x')));
  EXPECT_EQ(master.restart().error().code, ErrorCode::kCorrupt);
  EXPECT_EQ(read_file(master.path() / "index").value(), std::string(20'000, 'x'));
}

}  // namespace
}  // namespace nmc::store
