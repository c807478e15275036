#include "store/index.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <set>
#include <string>
#include <thread>

#include "base/hash.h"
#include "base/rng.h"

namespace nmc::store {
namespace {

// The master's steps for one key, as MasterCore does them.
class IndexTest : public testing::Test {
 protected:
  explicit IndexTest(std::uint32_t entries = 64)
      : files_(SharedFiles::in_memory()), index_(IndexWriter::create(files_, {entries, 0}, 99).value()) {}

  std::uint32_t add(std::string_view key) {
    const std::uint32_t number = index_.take_entry().value();
    IndexEntry& entry = index_.entry(number);
    Pins::set_reserved(entry.commit, ++generation_);
    index_.rest(number).key_hash.store(checksum64(key), std::memory_order_release);
    index_.set_extent(number, {.key_bytes = static_cast<std::uint16_t>(key.size())});
    index_.write_key(number, key);
    index_.add_slot(checksum64(key), number);
    Pins::publish(entry.commit);
    return number;
  }
  void drop(std::string_view key, std::uint32_t number) {
    Pins::begin_dying(index_.entry(number).commit);
    index_.drop_slot(checksum64(key), number);
    Pins::set_free(index_.entry(number).commit);
    index_.give_entry(number);
  }
  static IndexView::ProbeEnd probe(const IndexView& view, std::string_view key) {
    const std::uint64_t hash = checksum64(key);
    return view.probe(hash, [&](std::uint32_t number) {
      return state_of(view.entry(number).commit.load(std::memory_order_acquire)) == EntryState::kCommitted &&
             view.may_hold(number, key, hash);
    });
  }
  bool has(std::string_view key) { return probe(index_.view(), key) == IndexView::ProbeEnd::kStopped; }

  SharedFiles files_;
  IndexWriter index_;
  std::uint64_t generation_ = 0;
};

TEST_F(IndexTest, FindsWhatWasAddedAndNotWhatWasDropped) {
  const std::uint32_t a = add("a");
  const std::uint32_t b = add("b");
  EXPECT_NE(a, b);
  EXPECT_TRUE(has("a"));
  EXPECT_TRUE(has("b"));
  EXPECT_FALSE(has("c"));
  drop("a", a);
  EXPECT_FALSE(has("a"));
  EXPECT_TRUE(has("b"));
}

TEST_F(IndexTest, AKeyOfAnyLengthEqualsItselfAndNoneThatDiffersInOneByte) {
  for (std::size_t length = 1; length <= kInlineKeyBytes; ++length) {
    std::string key;
    for (std::size_t i = 0; i < length; ++i) key.push_back(static_cast<char>(i * 37 + length));
    const std::uint32_t number = add(key);
    const IndexView& view = index_.view();
    const std::uint64_t hash = checksum64(key);
    EXPECT_EQ(index_.read_key(number, length), key);
    EXPECT_TRUE(view.may_hold(number, key, hash)) << length;
    EXPECT_FALSE(view.may_hold(number, std::string_view(key).substr(1), hash)) << length;
    EXPECT_FALSE(view.may_hold(number, key + '\0', hash)) << length;
    for (std::size_t i = 0; i < length; ++i) {  // with the same hash, as if it collided
      std::string other = key;
      other[i] = static_cast<char>(other[i] ^ 0x80);
      EXPECT_FALSE(view.may_hold(number, other, hash)) << length << " at " << i;
    }
    drop(key, number);
  }
}

TEST_F(IndexTest, KeysThatShareAPrefixOrAPaddingDiffer) {
  add(std::string_view("a", 1));
  add(std::string_view("a\0", 2));
  add(std::string(kInlineKeyBytes, 'k'));
  EXPECT_TRUE(has(std::string_view("a\0", 2)));
  EXPECT_FALSE(has(std::string_view("a\0\0", 3)));
  EXPECT_TRUE(has(std::string(kInlineKeyBytes, 'k')));
  EXPECT_FALSE(has(std::string(kInlineKeyBytes - 1, 'k')));
}

TEST_F(IndexTest, AllEntriesCanBeInUse) {
  for (int i = 0; i < 64; ++i) add("key" + std::to_string(i));
  EXPECT_FALSE(index_.take_entry());
  EXPECT_EQ(index_.entries_in_use(), 64u);
  for (int i = 0; i < 64; ++i) EXPECT_TRUE(has("key" + std::to_string(i)));
}

TEST_F(IndexTest, AgreesWithAMapUnderChurnThroughManyRebuilds) {
  Rng rng(3);
  std::map<std::string, std::uint32_t> model;
  for (int i = 0; i < 200'000; ++i) {
    const std::string key = "key" + std::to_string(rng.below(5000));
    if (model.size() == 64 || model.contains(key)) {
      const auto victim = model.contains(key) ? model.find(key) : model.begin();
      drop(victim->first, victim->second);
      ASSERT_FALSE(has(victim->first));
      model.erase(victim);
      continue;
    }
    ASSERT_FALSE(has(key));
    model[key] = add(key);
    if (i % 32 != 0) continue;
    for (const auto& [each, number] : model) ASSERT_TRUE(has(each)) << each << " at " << i;
  }
  EXPECT_GT(index_.flips(), 100u);
}

TEST_F(IndexTest, AKeyThatStaysIsNeverMissedWhileTablesFlip) {
  std::vector<std::string> kept;
  for (int i = 0; i < 8; ++i) add(kept.emplace_back("kept" + std::to_string(i)));
  std::atomic<bool> stop{false};
  std::atomic<std::uint64_t> missed{0}, found{0};
  std::thread reader([&] {
    for (std::size_t i = 0; !stop.load(); ++i) {
      IndexView::ProbeEnd end;
      do {
        end = probe(index_.view(), kept[i % kept.size()]);
      } while (end == IndexView::ProbeEnd::kFlipped);
      (end == IndexView::ProbeEnd::kStopped ? found : missed).fetch_add(1);
    }
  });
  Rng rng(4);
  std::map<std::string, std::uint32_t> others;
  for (int i = 0; i < 200'000; ++i) {
    const std::string key = "key" + std::to_string(rng.below(1000));
    if (others.contains(key)) continue;
    if (others.size() == 56) {
      const auto victim = others.begin();
      drop(victim->first, victim->second);
      others.erase(victim);
    }
    others[key] = add(key);
  }
  while (found.load() < 1000 && missed.load() == 0) std::this_thread::yield();
  stop.store(true);
  reader.join();
  EXPECT_EQ(missed.load(), 0u);
  EXPECT_GT(index_.flips(), 10u);
}

TEST_F(IndexTest, AFileThatIsNotOursOrIsCutOrLiesIsRefused) {
  struct Case {
    const char* what;
    std::function<void(IndexHeader&)> damage;
    ErrorCode code;
  };
  const std::vector<Case> cases = {
      {"magic", [](IndexHeader& h) { h.magic[0] = 'X'; }, ErrorCode::kCorrupt},
      {"version", [](IndexHeader& h) { ++h.version; }, ErrorCode::kVersionMismatch},
      {"header_bytes", [](IndexHeader& h) { h.header_bytes = 64; }, ErrorCode::kCorrupt},
      {"file_bytes", [](IndexHeader& h) { ++h.file_bytes; }, ErrorCode::kCorrupt},
      {"entry_bytes", [](IndexHeader& h) { h.entry_bytes = 64; }, ErrorCode::kCorrupt},
      {"entry_count 0", [](IndexHeader& h) { h.entry_count = 0; }, ErrorCode::kCorrupt},
      {"entry_count", [](IndexHeader& h) { h.entry_count += 64; }, ErrorCode::kCorrupt},
      {"entry_count max", [](IndexHeader& h) { h.entry_count = ~0u; }, ErrorCode::kCorrupt},
      {"first_slot_count odd", [](IndexHeader& h) { h.first_slot_count = 100; }, ErrorCode::kCorrupt},
      {"first_slot_count large", [](IndexHeader& h) { h.first_slot_count = 1u << 31; }, ErrorCode::kCorrupt},
      {"table_count 0", [](IndexHeader& h) { h.table_count = 0; }, ErrorCode::kCorrupt},
      {"table_count odd", [](IndexHeader& h) { h.table_count = 3; }, ErrorCode::kCorrupt},
      {"table_count large", [](IndexHeader& h) { h.table_count = 46; }, ErrorCode::kCorrupt},
      {"entries_offset in header", [](IndexHeader& h) { h.entries_offset = 128; }, ErrorCode::kCorrupt},
      {"entries_offset unaligned", [](IndexHeader& h) { h.entries_offset += 64; }, ErrorCode::kCorrupt},
      {"entries_offset outside", [](IndexHeader& h) { h.entries_offset = ~std::uint64_t{127}; }, ErrorCode::kCorrupt},
      {"slots_offset in entries", [](IndexHeader& h) { h.slots_offset = h.entries_offset; }, ErrorCode::kCorrupt},
      {"slots_offset unaligned", [](IndexHeader& h) { h.slots_offset += 4; }, ErrorCode::kCorrupt},
      {"slots_offset outside", [](IndexHeader& h) { h.slots_offset = ~std::uint64_t{63}; }, ErrorCode::kCorrupt},
  };
  Mapping sound = Mapping::map(index_.fd(), sizeof(IndexHeader), Mapping::Access::kRead, "x").value();
  const auto* header = reinterpret_cast<const IndexHeader*>(sound.data());
  const std::size_t bytes = header->file_bytes;
  Mapping copy = Mapping::anonymous(bytes).value();
  Mapping file = Mapping::map(index_.fd(), bytes, Mapping::Access::kRead, "index").value();
  for (const Case& one : cases) {
    std::memcpy(copy.data(), file.data(), bytes);
    one.damage(*reinterpret_cast<IndexHeader*>(copy.data()));
    const auto view = IndexView::over(copy.bytes());
    ASSERT_FALSE(view) << one.what;
    EXPECT_EQ(view.error().code, one.code) << one.what << ": " << view.error().message;
  }
  std::memcpy(copy.data(), file.data(), bytes);
  EXPECT_TRUE(IndexView::over(copy.bytes()));
  for (const std::size_t cut : {std::size_t{0}, std::size_t{63}, sizeof(IndexHeader), bytes - 1}) {
    EXPECT_FALSE(IndexView::over(copy.bytes().first(cut))) << cut;
  }
}

TEST_F(IndexTest, SlotsFullOfNonsenseAreAMiss) {
  add("a");
  Mapping file = Mapping::map(index_.fd(), sizeof(IndexHeader), Mapping::Access::kRead, "index").value();
  const std::size_t bytes = reinterpret_cast<const IndexHeader*>(file.data())->file_bytes;
  Mapping all = Mapping::map(index_.fd(), bytes, Mapping::Access::kReadWrite, "index").value();
  auto& header = *reinterpret_cast<IndexHeader*>(all.data());
  auto* slots = reinterpret_cast<SharedWord*>(all.data() + header.slots_offset);
  Rng rng(1);
  for (std::uint32_t i = 0; i < 2 * header.first_slot_count; ++i) slots[i].store(rng.next() | 1);
  for (int i = 0; i < 1000; ++i) probe(index_.view(), "key" + std::to_string(i));  // ends, within bounds
  const std::uint64_t hash = checksum64("a");
  for (std::uint32_t i = 0; i < 2 * header.first_slot_count; ++i) slots[i].store((hash >> 32 << 32) | 0xfffffff0u);
  EXPECT_EQ(probe(index_.view(), "a"), IndexView::ProbeEnd::kMiss);
}

TEST(IndexGrowthTest, EntriesAndTablesGrowInPlaceWhileReadersLook) {
  SharedFiles files = SharedFiles::in_memory();
  IndexWriter index = IndexWriter::create(files, {16, 1 << 14}, 7).value();
  const auto fill = [&](std::uint32_t number, const std::string& key) {
    IndexEntry& entry = index.entry(number);
    Pins::set_reserved(entry.commit, number + 1);
    index.rest(number).key_hash.store(checksum64(key), std::memory_order_release);
    index.set_extent(number, {.key_bytes = static_cast<std::uint16_t>(key.size())});
    index.write_key(number, key);
    index.add_slot(checksum64(key), number);
    Pins::publish(entry.commit);
  };
  const auto has = [&](const IndexView& view, const std::string& key) {
    const std::uint64_t hash = checksum64(key);
    IndexView::ProbeEnd end;
    do {
      end = view.probe(hash, [&](std::uint32_t number) { return view.may_hold(number, key, hash); });
    } while (end == IndexView::ProbeEnd::kFlipped);
    return end == IndexView::ProbeEnd::kStopped;
  };
  const std::size_t bytes = [&] {
    Mapping header = Mapping::map(index.fd(), sizeof(IndexHeader), Mapping::Access::kRead, "index").value();
    return reinterpret_cast<const IndexHeader*>(header.data())->file_bytes;
  }();
  Mapping mapped = Mapping::map(index.fd(), bytes, Mapping::Access::kRead, "index").value();
  const IndexView view = IndexView::over(mapped.bytes()).value();  // made before any growth
  fill(index.take_entry().value(), "first");
  std::atomic<bool> stop{false};
  std::atomic<std::uint64_t> missed{0}, found{0};
  std::thread reader([&] {
    while (!stop.load()) (has(view, "first") ? found : missed).fetch_add(1);
  });
  std::uint32_t next = 0;
  while (view.entries_ready() < view.entry_count()) {
    while (const auto number = index.take_entry()) fill(*number, "key" + std::to_string(next++));
    ASSERT_TRUE(index.grow(2 * view.entries_ready()));
  }
  while (const auto number = index.take_entry()) fill(*number, "key" + std::to_string(next++));
  while (found.load() < 1000 && missed.load() == 0) std::this_thread::yield();
  stop.store(true);
  reader.join();
  EXPECT_EQ(missed.load(), 0u);
  EXPECT_EQ(next, (1u << 14) - 1);
  for (std::uint32_t i = 0; i < next; ++i) ASSERT_TRUE(has(view, "key" + std::to_string(i))) << i;
  EXPECT_FALSE(has(view, "key" + std::to_string(next)));
}

TEST(IndexEntryTest, WordsCarryTheirParts) {
  const EntryMeta meta = unpack_meta(pack_meta({2, kHardPinned, 0xfedcba98}));
  EXPECT_EQ(meta.object_class, 2);
  EXPECT_EQ(meta.flags, kHardPinned);
  EXPECT_EQ(meta.next_replica, 0xfedcba98u);
  for (const bool has_checksum : {false, true}) {
    const EntryExtent extent = unpack_extent(pack_extent({0x7edcba987654, has_checksum, 4096}));
    EXPECT_EQ(extent.bytes, 0x7edcba987654u);
    EXPECT_EQ(extent.has_checksum, has_checksum);
    EXPECT_EQ(extent.key_bytes, 4096);
  }
  const Location at = unpack_location(pack_location({0xabcd, 0x123456789abc}));
  EXPECT_EQ(at.segment, 0xabcd);
  EXPECT_EQ(at.offset, 0x123456789abcu);
}

}  // namespace
}  // namespace nmc::store
