// The master's rules beyond what the embedded store uses: several segments, pins by wish, leases, replacement.
#include "store/master_core.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "store/master_test_support.h"

namespace nmc::store {
namespace {

using namespace std::chrono_literals;
using ::testing::ElementsAre;
using ::testing::Optional;
using testing::TestMaster;
using ::testing::UnorderedElementsAre;

TEST(MasterSegments, ObjectsGoToThePreferredOneElseToTheEmptiest) {
  TestMaster master;
  master.mount("a", 4096);
  master.mount("b", 8192);
  const std::vector<std::string> a = {"a"}, unknown = {"nowhere"};
  EXPECT_EQ(master.reserve(std::string(64, 'x'))->at.segment, 1);
  EXPECT_EQ(master.reserve(std::string(64, 'x'), {.preferred = a})->at.segment, 0);
  EXPECT_EQ(master.reserve(std::string(64, 'x'), {.preferred = unknown})->at.segment, 1);
  const std::vector<std::uint16_t> not_b = {1}, none = {0, 1};
  EXPECT_EQ(master.reserve(std::string(64, 'x'), {.avoid = not_b})->at.segment, 0);
  EXPECT_EQ(master.reserve(std::string(64, 'x'), {.avoid = none}).error().code, ErrorCode::kResourceExhausted);
  EXPECT_EQ(master.reserve(std::string(4096, 'x'), {.preferred = a})->at.segment, 1);  // "a" has no such piece free
}

TEST(MasterSegments, WithoutAnyThereIsNoRoom) {
  TestMaster master;
  EXPECT_EQ(master.reserve("x").error().code, ErrorCode::kResourceExhausted);
}

TEST(MasterSegments, NamesOfMountedOnesAreUnique) {
  TestMaster master;
  const std::uint32_t first = master.mount("a", 4096);
  EXPECT_EQ(master.core().mount("a", 4096, 0).error().code, ErrorCode::kAlreadyExists);
  ASSERT_TRUE(master.core().unmount(first));
  EXPECT_TRUE(master.core().mount("a", 4096, 0));
}

TEST(MasterSegments, TooLargeForTheMachineIsRefusedAndLeavesNothing) {
  TestMaster master;
  for (const std::uint64_t bytes : {std::uint64_t{1} << 46, std::uint64_t{1} << 62})
    EXPECT_EQ(master.core().mount("a", bytes, 0).error().code, ErrorCode::kResourceExhausted) << bytes;
  EXPECT_THAT(master.core().segments(), ::testing::IsEmpty());
  EXPECT_FALSE(std::filesystem::exists(master.path() / "segment.0"));
  EXPECT_TRUE(master.core().mount("a", 4096, 0));
}

TEST(MasterSegments, OneBeyondWhatAnIndexCanNameIsRefused) {
  TestMaster master;
  // Among them sizes that would wrap around with a header in front, or rounded up.
  for (const std::uint64_t bytes : {kSegmentBytesMax + 1, ~std::uint64_t{0} - 4091, ~std::uint64_t{0}}) {
    const auto mounted = master.core().mount("a", bytes, 0);
    ASSERT_FALSE(mounted) << bytes;
    EXPECT_EQ(mounted.error().code, ErrorCode::kResourceExhausted) << bytes;
  }
  EXPECT_EQ(master.mount("a", 4096), 0u);
}

TEST(MasterSegments, UnmountedTakesItsObjectsAlongButNotWhatIsPinned) {
  TestMaster master;
  const std::uint32_t number = master.mount("a", 4096);
  ASSERT_TRUE(master.put("k", "value"));
  ASSERT_TRUE(master.put("other", "other"));
  std::optional<Pin> pin = master.reader().lookup("k");
  const std::string_view bytes(reinterpret_cast<const char*>(pin->bytes().data()), pin->bytes().size());
  ASSERT_TRUE(master.core().unmount(number));
  EXPECT_EQ(master.get("k"), std::nullopt);
  EXPECT_EQ(bytes, "value");
  EXPECT_EQ(master.stats().objects, 0u);
  EXPECT_EQ(master.core().segments().front().state, SegmentState::kLeaving);
  EXPECT_EQ(master.core().unmount(number).error().code, ErrorCode::kNotFound);
  // Another one while the first drains: another number. Once it is drained its number has another life.
  EXPECT_NE(master.mount("a", 4096), number);
  pin.reset();
  EXPECT_EQ(master.stats().limbo_bytes, 0u);
  EXPECT_EQ(master.core().segments().size(), 1u);
  EXPECT_EQ(master.mount("b", 8192), number);
  const std::vector<std::string> b = {"b"};
  ASSERT_TRUE(master.put("k", "new value", {}, {.preferred = b}));
  EXPECT_THAT(master.get("k"), Optional(std::string("new value")));
  master.reader().drop_stale_segments();
  EXPECT_THAT(master.get("k"), Optional(std::string("new value")));
}

TEST(MasterSegments, AReservationInAnUnmountedOneIsNotCommitted) {
  TestMaster master;
  const std::uint32_t number = master.mount("a", 4096);
  const auto space = master.reserve("value").value();
  ASSERT_TRUE(master.core().unmount(number));
  EXPECT_EQ(master.commit(space, "k").error().code, ErrorCode::kUnavailable);
  EXPECT_EQ(master.get("k"), std::nullopt);
  EXPECT_EQ(master.core().segments().size(), 1u);
  master.core().abort(space.entry, space.generation);
  EXPECT_THAT(master.core().segments(), ::testing::IsEmpty());
}

TEST(MasterSegments, EvictionMakesRoomWhereItIsNeeded) {
  TestMaster master;
  master.mount("a", 1024);
  master.mount("b", 1024);
  const std::vector<std::string> a = {"a"};
  const std::vector<std::uint16_t> not_a = {0};
  for (int i = 0; i < 16; ++i)
    ASSERT_TRUE(master.put("a" + std::to_string(i), std::string(64, 'a'), {}, {.preferred = a}));
  for (int i = 0; i < 16; ++i)
    ASSERT_TRUE(master.put("b" + std::to_string(i), std::string(64, 'b'), {}, {.avoid = not_a}));
  ASSERT_TRUE(master.put("new", std::string(64, 'n'), {}, {.avoid = not_a}));  // must lie in b, though a's are older
  EXPECT_TRUE(master.get("a0"));
  EXPECT_FALSE(master.get("b0"));
  ASSERT_TRUE(master.put("newer", std::string(64, 'n')));
  EXPECT_FALSE(master.get("a1"));  // a0 was read meanwhile
}

TEST(MasterSegments, AParkedOneHidesItsObjectsUntilAnotherOwnerTakesItOver) {
  TestMaster master;
  const std::uint32_t number = master.mount("host:1", 4096, 5);
  for (const char* key : {"k", "again", "removed", "both"}) ASSERT_TRUE(master.put(key, std::string("old ") + key));
  std::optional<Pin> pin = master.reader().lookup("k");
  ASSERT_TRUE(master.core().park(number));
  EXPECT_EQ(master.core().park(number).error().code, ErrorCode::kNotFound);
  for (const char* key : {"k", "again"}) EXPECT_EQ(master.get(key), std::nullopt);
  EXPECT_FALSE(master.reader().contains("k"));
  EXPECT_THAT(master.core().keys(), ::testing::IsEmpty());
  EXPECT_EQ(master.core().remove("removed"), MasterCore::Removal::kAbsent);
  EXPECT_EQ(master.put("new", "v").error().code, ErrorCode::kResourceExhausted);
  EXPECT_EQ(pin->bytes().size(), 5u);
  pin.reset();
  // One of another size is another one; meanwhile a key is put anew.
  master.mount("host:2", 8192, 6);
  ASSERT_TRUE(master.put("again", "new"));
  ASSERT_TRUE(master.put("both", "new"));
  EXPECT_EQ(master.core().remove("both"), MasterCore::Removal::kRemoved);
  EXPECT_EQ(master.mount("host:3", 4096, 7), number);
  EXPECT_THAT(master.get("k"), Optional(std::string("old k")));
  EXPECT_THAT(master.get("again"), Optional(std::string("new")));
  for (const char* key : {"removed", "both"}) EXPECT_EQ(master.get(key), std::nullopt) << "removed meanwhile";
  EXPECT_EQ(master.stats().objects, 2u);
  EXPECT_EQ(master.core().segments().front().name, "host:3");
  EXPECT_EQ(master.core().segments().front().owner, 7u);
  EXPECT_EQ(master.core().segments().front().used_bytes, 64u);
}

TEST(MasterObjects, AKeyThatIsReplacedIsNeverMissed) {
  TestMaster master;
  master.mount("a", 64 << 10);
  ASSERT_TRUE(master.put("k", "value"));
  std::atomic<bool> stop = false;
  std::atomic<int> looks = 0, misses = 0;
  std::thread reader([&] {
    for (; !stop; ++looks) {
      if (!master.get("k") || !master.reader().contains("k") || !master.reader().probe("k")) ++misses;
    }
  });
  // Others come and go, so that slots and entries change hands.
  for (int i = 0; i < 20'000 || looks < 1000; ++i) {
    const std::string other = "other " + std::to_string(i % 50);
    EXPECT_TRUE(master.put("k", "value", {.replace = true}));
    EXPECT_TRUE(master.put(other, "value"));
    if (i % 3 == 0) master.core().remove(other);
  }
  stop = true;
  reader.join();
  EXPECT_EQ(misses, 0);
}

TEST(MasterReservations, OnesThatTheirClientLostSightOfAreTakenBack) {
  TestMaster master;
  master.mount("a", 4096);
  const PinTable* client = master.core().add_client(Clients::Kind::kUser).value();
  SharedWord& oldest_put = client->header().oldest_put;
  const auto reserve = [&](bool by_client) {
    master.time().advance(1ms);
    return master.reserve("v", {.client = client->client(), .by_client = by_client}).value();
  };
  const auto reservations_kept = [&] {
    master.time().advance(1ms);
    master.core().keep_house(10s);
    return master.stats().reservations;
  };
  reserve(true);
  master.time().advance(1ms);
  oldest_put = master.clock().ticks();  // the next one is of a put that began now
  const auto in_use = reserve(true);
  reserve(false);  // the master's own work, whatever the client says
  EXPECT_EQ(reservations_kept(), 2u);
  oldest_put = master.clock().ticks() + (1 << 20);
  EXPECT_EQ(reservations_kept(), 2u) << "of a clock that isn't ours";
  oldest_put = 0;
  EXPECT_EQ(reservations_kept(), 1u);
  EXPECT_EQ(master.commit(in_use, "k").error().code, ErrorCode::kPermissionDenied);
}

TEST(MasterSegments, WhatNobodyTakesOverIsUnmountedInTheEnd) {
  TestMaster master;
  ASSERT_TRUE(master.core().park(master.mount("host:1", 4096, 5)));
  master.core().keep_house(10s);
  EXPECT_EQ(master.core().segments().size(), 1u);
  master.time().advance(11s);
  master.core().keep_house(10s);
  EXPECT_THAT(master.core().segments(), ::testing::IsEmpty());
}

// Three copies of one object in three segments.
class MasterCopies : public ::testing::Test {
 protected:
  MasterCopies() {
    for (const char* name : {"a", "b", "c"}) master_.mount(name, 4096);
    put("k", "value");
  }
  void put(std::string_view key, std::string_view value, MasterCore::Commit how = {}) {
    std::vector<std::uint16_t> used;
    std::vector<MasterCore::Held> copies;
    std::optional<MasterCore::Space> first;
    for (int i = 0; i < 3; ++i) {
      const auto space = master_.reserve(value, {.avoid = used}).value();
      used.push_back(space.at.segment);
      if (!first)
        first = space;
      else
        copies.push_back({space.entry, space.generation});
    }
    how.copies = copies;
    ASSERT_TRUE(master_.commit(*first, key, how));
  }
  std::vector<std::string> places(std::string_view key) {
    std::vector<std::string> names;
    for (const auto& replica : master_.core().replicas(key)) names.push_back(replica.segment);
    return names;
  }
  std::uint32_t segment_called(std::string_view name) {
    for (const auto& segment : master_.core().segments()) {
      if (segment.name == name && segment.state == SegmentState::kMounted) return segment.number;
    }
    return 99;
  }
  TestMaster master_;
};

TEST_F(MasterCopies, AreOneObject) {
  EXPECT_EQ(master_.stats().objects, 1u);
  EXPECT_EQ(master_.stats().reservations, 0u);
  EXPECT_THAT(places("k"), UnorderedElementsAre("a", "b", "c"));
  put("k", "another");  // the first stays, and the loser's copies go
  EXPECT_THAT(master_.get("k"), Optional(std::string("value")));
  EXPECT_EQ(master_.stats().used_bytes, 3 * 64u);
  put("k", "another", {.replace = true});
  EXPECT_THAT(master_.get("k"), Optional(std::string("another")));
  EXPECT_EQ(master_.stats().used_bytes, 3 * 64u);
  EXPECT_EQ(master_.core().remove("k"), MasterCore::Removal::kRemoved);
  EXPECT_EQ(master_.stats().used_bytes, 0u);
}

TEST_F(MasterCopies, OutliveTheSegmentsOfTheOthers) {
  for (int left = 2; left >= 0; --left) {
    const std::string first = places("k")[0];
    const std::uint32_t number = segment_called(first);
    ASSERT_TRUE(left == 1 ? master_.core().park(number) : master_.core().unmount(number));
    EXPECT_EQ(places("k").size(), static_cast<std::size_t>(left));
    EXPECT_EQ(master_.get("k"), left > 0 ? std::optional<std::string>("value") : std::nullopt) << left;
  }
}

TEST_F(MasterCopies, OfASegmentThatGoesAreForgotten) {
  const std::string second = places("k")[1], third = places("k")[2];
  ASSERT_TRUE(master_.core().park(segment_called(second)));
  ASSERT_TRUE(master_.core().unmount(segment_called(third)));
  EXPECT_EQ(places("k").size(), 1u);
  EXPECT_THAT(master_.get("k"), Optional(std::string("value")));
  EXPECT_EQ(master_.stats().used_bytes, 64u);
}

TEST_F(MasterCopies, AreKnownToTheNextMaster) {
  const std::string long_key(300, 'k');
  put(long_key, "long");
  const auto before = places("k");
  EXPECT_EQ(master_.restart()->objects, 2u);
  EXPECT_EQ(places("k"), before);
  EXPECT_EQ(places(long_key).size(), 3u);
  EXPECT_EQ(master_.stats().used_bytes, 3 * (64u + 64u + 320u));
  // The first copy's segment is gone with its file: another one is found.
  const std::string file = Segment::file_name(segment_called(before[0]));
  master_.forget();
  std::filesystem::remove(master_.path() / file);
  ASSERT_TRUE(master_.restart());
  EXPECT_THAT(master_.get("k"), Optional(std::string("value")));
  EXPECT_THAT(master_.get(long_key), Optional(std::string("long")));
  EXPECT_EQ(places("k").size(), 1u);  // which of those that nothing leads to are alike isn't known
  EXPECT_EQ(master_.stats().objects, 2u);
}

TEST(MasterReservations, AreTheirClientsAloneAndEndWithIt) {
  TestMaster master({.reservation_lifetime = 30s});
  master.mount("a", 4096);
  const std::uint32_t client = master.core().add_client(Clients::Kind::kUser).value()->client();
  const auto space = master.reserve("value", {.client = client}).value();
  EXPECT_EQ(master.commit(space, "k", {.client = client + 1}).error().code, ErrorCode::kPermissionDenied);
  EXPECT_EQ(master.core().commit({.entry = space.entry, .generation = space.generation + 1, .key = "k"}).error().code,
            ErrorCode::kPermissionDenied);
  EXPECT_EQ(master.core().commit({.entry = ~0u, .generation = 1, .key = "k"}).error().code,
            ErrorCode::kPermissionDenied);
  EXPECT_FALSE(master.core().abort(space.entry, space.generation, client + 1));
  EXPECT_FALSE(master.core().abort(~0u, space.generation));
  EXPECT_TRUE(master.commit(space, "k", {.client = client}));
  const auto late = master.reserve("value", {.client = client}).value();
  master.time().advance(31s);
  EXPECT_EQ(master.commit(late, "late", {.client = client}).error().code, ErrorCode::kPermissionDenied);
  EXPECT_EQ(master.stats().reservations, 1u);  // it may still be writing there
  master.core().drop_client(client);
  EXPECT_EQ(master.stats().reservations, 0u);
}

TEST(MasterIndex, GrowsBeforeItEvicts) {
  TestMaster master({.entries = {4, 64}});
  master.mount("a", 64 * 64);
  for (int i = 0; i < 64; ++i) ASSERT_TRUE(master.put("k" + std::to_string(i), "v" + std::to_string(i)));
  EXPECT_EQ(master.stats().evicted_objects, 0u);
  EXPECT_EQ(master.stats().index_entries, 64u);
  for (int i = 0; i < 64; ++i) EXPECT_THAT(master.get("k" + std::to_string(i)), Optional("v" + std::to_string(i)));
  ASSERT_TRUE(master.put("one more", "v"));
  EXPECT_EQ(master.stats().evicted_objects, 1u);
}

TEST(MasterRemoval, ALeaseHoldsWhatWasReadUntilItEndsOrIsForced) {
  TestMaster master({.lease = 3s});
  master.mount("a", 4096);
  using Removal = MasterCore::Removal;
  ASSERT_TRUE(master.put("k", "v"));
  EXPECT_EQ(master.core().remove("never", false), Removal::kAbsent);
  EXPECT_EQ(master.core().remove("k", false), Removal::kRemoved);  // putting is not reading
  ASSERT_TRUE(master.put("k", "v"));
  EXPECT_TRUE(master.get("k"));
  master.time().advance(2999ms);
  EXPECT_EQ(master.core().remove("k", false), Removal::kLeased);
  master.time().advance(2ms);
  EXPECT_EQ(master.core().remove("k", false), Removal::kRemoved);
  ASSERT_TRUE(master.put("k", "v"));
  EXPECT_TRUE(master.get("k"));
  EXPECT_EQ(master.core().remove("k", true), Removal::kRemoved);
  EXPECT_EQ(master.core().remove("k", true), Removal::kAbsent);
}

TEST(MasterRemoval, TheLeaseOfAReaderThatIsGoneStillHolds) {
  TestMaster master({.lease = 3s});
  master.mount("a", 4096);
  ASSERT_TRUE(master.put("k", "v"));
  const PinTable* table = master.core().add_client(Clients::Kind::kUser).value();
  const std::uint32_t client = table->client();
  {
    auto other = SharedStoreReader::open(master.core().files_for(*table).value(), master.clock()).value();
    EXPECT_TRUE(other->lookup("k"));
  }
  master.core().drop_client(client);
  EXPECT_FALSE(std::filesystem::exists(master.path() / Clients::file_name(client)));
  EXPECT_EQ(master.core().remove("k", false), MasterCore::Removal::kLeased);
  master.time().advance(4s);
  EXPECT_EQ(master.core().remove("k", false), MasterCore::Removal::kRemoved);
}

TEST(MasterCommit, TheFirstOneKeepsTheKeyUnlessTheNextReplacesIt) {
  TestMaster master;
  master.mount("a", 4096);
  const auto first = master.put("k", "first").value();
  EXPECT_EQ(master.put("k", "second")->generation, first.generation);
  EXPECT_THAT(master.get("k"), Optional(std::string("first")));
  std::optional<Pin> old = master.reader().lookup("k");
  const auto replaced = master.put("k", "the third", {.replace = true}).value();
  EXPECT_NE(replaced.generation, first.generation);
  EXPECT_THAT(master.get("k"), Optional(std::string("the third")));
  EXPECT_EQ(old->bytes().size(), 5u);  // who held it still does
  EXPECT_EQ(master.stats().objects, 1u);
  EXPECT_EQ(master.stats().reservations, 0u);
  EXPECT_EQ(master.stats().used_bytes, 128u);
  old.reset();
  EXPECT_EQ(master.stats().limbo_bytes, 0u);
  EXPECT_EQ(master.stats().used_bytes, 64u);
}

TEST(MasterEviction, SoftPinnedGoLastAndHardPinnedNever) {
  TestMaster master({.soft_pin_lifetime = 60s});
  master.mount("a", 4 * 64);
  ASSERT_TRUE(master.put("hard", "v", {.hard_pin = true}));
  ASSERT_TRUE(master.put("soft", "v", {.soft_pin = SoftPin::kPin}));
  ASSERT_TRUE(master.put("plain1", "v"));
  ASSERT_TRUE(master.put("plain2", "v"));
  for (int i = 0; i < 6; ++i) {
    ASSERT_TRUE(master.put("new" + std::to_string(i), "v"));
    EXPECT_THAT(master.core().keys(), ::testing::IsSupersetOf({"hard", "soft"})) << i;
  }
  // Its time is over: it goes like any other.
  master.time().advance(61s);
  ASSERT_TRUE(master.put("later", "v"));
  EXPECT_FALSE(master.get("soft"));
  // All that is left to take is soft-pinned.
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(master.put("s" + std::to_string(i), "v", {.soft_pin = SoftPin::kPin}));
  ASSERT_TRUE(master.put("s3", "v", {.soft_pin = SoftPin::kPin}));
  EXPECT_THAT(master.core().keys(), UnorderedElementsAre("hard", "s1", "s2", "s3"));
}

TEST(MasterEviction, SoftPinnedStayWhereThatIsTheRule) {
  TestMaster master({.evict_soft_pinned = false});
  master.mount("a", 2 * 64);
  ASSERT_TRUE(master.put("soft1", "v", {.soft_pin = SoftPin::kPin}));
  ASSERT_TRUE(master.put("soft2", "v", {.soft_pin = SoftPin::kPin}));
  EXPECT_EQ(master.put("k", "v").error().code, ErrorCode::kResourceExhausted);
}

TEST(MasterCore, AHeldReservationStaysWhileItsClientHasItPinned) {
  TestMaster master;
  master.mount("a", 1 << 20);
  const PinTable& pins = master.reader().pins();
  MasterCore::Wish wish{.object_class = ObjectClass::kBlock, .client = pins.client(), .held_by_pin = true};
  const auto known = master.reserve("known", wish).value(), lost = master.reserve("lost", wish).value();
  const std::uint64_t reserved = make_commit_word(known.generation, EntryState::kReserved);
  ASSERT_TRUE(Pins::pin(master.core().entry(known.entry).commit, reserved, pins.word(known.entry), 0));
  master.time().advance(MasterCore::kHeldPinDeadline / 2);
  master.core().keep_house(std::chrono::hours(1));
  EXPECT_EQ(master.stats().reservations, 2u) << "its client may not have heard of it yet";
  master.time().advance(MasterCore::kHeldPinDeadline);
  master.core().keep_house(std::chrono::hours(1));
  EXPECT_EQ(master.stats().reservations, 1u);
  EXPECT_FALSE(master.commit(lost, "lost"));
  master.time().advance(std::chrono::hours(24));
  master.core().keep_house(std::chrono::hours(1));
  Pins::unpin(pins.word(known.entry));
  EXPECT_TRUE(master.commit(known, "known")) << "however long it took";
  EXPECT_EQ(master.get("known"), "known");
}

TEST(MasterCore, AllThatIsWishedIsReservedOrNothing) {
  TestMaster master;
  master.mount("a", 64 << 10);
  ASSERT_TRUE(master.put("old", std::string(4096, 'o')));
  MasterCore::Wish wish{.object_class = ObjectClass::kBlock, .bytes = 4096};
  const auto refused = master.core().reserve_all(wish, 17);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kResourceExhausted);
  EXPECT_TRUE(master.get("old")) << "nothing is evicted in vain";
  ASSERT_TRUE(master.core().reserve_all(wish, 15));
  EXPECT_TRUE(master.get("old"));
  ASSERT_TRUE(master.core().reserve_all(wish, 1));
  EXPECT_FALSE(master.get("old"));
}

}  // namespace
}  // namespace nmc::store
