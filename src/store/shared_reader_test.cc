// Several processes on one index: readers with pin tables of their own beside the master, under load and when they die.
#include "store/shared_reader.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstring>
#include <deque>
#include <functional>
#include <iostream>
#include <string>

#include "base/hash.h"
#include "base/rng.h"
#include "store/embedded_store.h"

namespace nmc::store {
namespace {

constexpr std::size_t kBlockBytes = 1024;
constexpr std::size_t kKeys = 1024;
constexpr std::size_t kKept = 16;  // keys 0..kKept-1 are committed first and never go

std::string key_of(std::size_t i) {
  return i % 5 == 4 ? std::string(100, 'k') + std::to_string(i) : "nmc/" + std::to_string(i);
}

// Every word of an object is a function of its key, its generation and the word's place.
std::uint64_t word_of(std::string_view key, std::uint64_t generation, std::size_t i) {
  return keyed_random(checksum64(key), generation, i);
}
void fill(std::span<std::byte> bytes, std::string_view key, std::uint64_t generation) {
  for (std::size_t i = 0; i + 8 <= bytes.size(); i += 8) {
    const std::uint64_t word = word_of(key, generation, i);
    std::memcpy(&bytes[i], &word, 8);
  }
}
bool holds(const Pin& pin, std::string_view key) {
  for (std::size_t i = 0; i + 8 <= pin.bytes().size(); i += 8) {
    std::uint64_t word;
    std::memcpy(&word, &pin.bytes()[i], 8);
    if (word != word_of(key, pin.generation(), i)) return false;
  }
  return pin.bytes().size() == kBlockBytes;
}

class SharedReaderTest : public testing::Test {
 protected:
  void open(std::size_t blocks, const Clock& clock = real_clock()) {
    StoreOptions options;
    options.clock = &clock;
    options.dram_bytes = blocks * kBlockBytes;
    options.block_bytes = kBlockBytes;
    options.index_entries = blocks + 8;
    store_ = EmbeddedStore::create(options).value();
  }
  // True when the object is the one just written.
  bool commit(std::string_view key, Pin* keep = nullptr) {
    auto reservation = store_->reserve(ObjectClass::kBlock, kBlockBytes);
    if (!reservation) return false;
    fill(reservation->bytes(), key, reservation->generation());
    const std::uint64_t own = reservation->generation();
    auto pin = store_->commit(std::move(*reservation), key);
    if (!pin) return false;
    const bool mine = pin->generation() == own;
    if (keep != nullptr) *keep = *std::move(pin);
    return mine;
  }

  // Runs `body` in a child process with a reader of its own; its exit code is what it returns.
  pid_t start_child(ClientFiles files, const std::function<int(SharedStoreReader&)>& body) {
    std::cout.flush();
    const pid_t child = ::fork();
    if (child != 0) return child;
    TouchClock clock(real_clock());
    auto reader = SharedStoreReader::open(std::move(files), clock);
    ::_exit(reader ? body(**reader) : 99);
  }
  static int wait_for(pid_t child) {
    int status = 0;
    if (::waitpid(child, &status, 0) != child) return -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
  }

  std::unique_ptr<EmbeddedStore> store_;
};

// What a child saw wrong, as its exit code.
enum Wrong { kNothing = 0, kWrongBytes = 1, kMissedAKept = 2, kChangedUnderPin = 3, kFoundNothing = 4 };

int read_at_random(SharedStoreReader& reader, std::uint64_t seed, int lookups) {
  Rng rng(seed);
  std::deque<std::pair<std::size_t, Pin>> held;
  int found = 0;
  for (int i = 0; i < lookups; ++i) {
    const std::size_t which = rng.below(4) == 0 ? rng.below(kKept) : rng.below(kKeys);
    std::optional<Pin> pin = reader.lookup(key_of(which));
    if (!pin && which < kKept) return kMissedAKept;
    if (which < kKept && !reader.contains(key_of(which))) return kMissedAKept;
    if (!pin) continue;
    ++found;
    if (!holds(*pin, key_of(which))) return kWrongBytes;
    held.emplace_back(which, *std::move(pin));
    if (held.size() <= rng.below(6)) continue;
    if (!holds(held.front().second, key_of(held.front().first))) return kChangedUnderPin;
    held.pop_front();
  }
  return found > lookups / 16 ? kNothing : kFoundNothing;
}

TEST_F(SharedReaderTest, TwoProcessesReadRightWhileTheMasterCommitsEvictsAndRemoves) {
  constexpr std::uint64_t kSeed = 42;
  constexpr int kLookups = 150'000;
  std::cout << "seed " << kSeed << "\n";
  open(96);
  std::vector<Pin> kept(kKept);
  for (std::size_t i = 0; i < kKept; ++i) ASSERT_TRUE(commit(key_of(i), &kept[i]));
  std::vector<pid_t> children;
  std::vector<std::uint32_t> clients;
  for (int c = 0; c < 2; ++c) {
    ClientFiles files = store_->add_client().value();
    clients.push_back(files.client);
    children.push_back(start_child(std::move(files), [c](SharedStoreReader& reader) {
      return read_at_random(reader, kSeed + static_cast<std::uint64_t>(c), kLookups);
    }));
  }
  Rng rng(kSeed + 100);
  std::size_t running = children.size();
  std::vector<int> codes;
  for (std::uint64_t i = 0; running > 0; ++i) {
    const std::string key = key_of(kKept + rng.below(kKeys - kKept));
    if (rng.below(4) == 0)
      store_->remove(key);
    else
      commit(key);
    if (i % 256 != 0) continue;
    for (pid_t& child : children) {
      int status = 0;
      if (child == 0 || ::waitpid(child, &status, WNOHANG) != child) continue;
      codes.push_back(WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status));
      child = 0;
      --running;
    }
  }
  EXPECT_THAT(codes, testing::ElementsAre(kNothing, kNothing));
  const StoreStats stats = store_->stats();
  EXPECT_EQ(stats.limbo_bytes, 0u);
  EXPECT_EQ(stats.pins, kKept);
  EXPECT_GE(stats.lookups, 2u * kLookups);
  EXPECT_GT(stats.evicted_objects, 1000u);
  EXPECT_GT(stats.removes, 100u);
  EXPECT_GT(stats.index_rebuilds, 10u);
  std::cout << stats.commits << " commits, " << stats.evicted_objects << " evictions, " << stats.hits << " hits, "
            << stats.index_rebuilds << " index rebuilds\n";
}

TEST_F(SharedReaderTest, AChildsPinHoldsUntilTheChildIsDeclaredGone) {
  open(1);
  ASSERT_TRUE(commit("a"));
  ClientFiles files = store_->add_client().value();
  const std::uint32_t client = files.client;
  std::array<int, 2> pipe{};
  ASSERT_EQ(::pipe2(pipe.data(), O_CLOEXEC), 0);
  const pid_t child = start_child(std::move(files), [&](SharedStoreReader& reader) {
    const auto pin = reader.lookup("a");
    if (!pin || ::write(pipe[1], "p", 1) != 1) return 1;
    ::pause();
    return 0;
  });
  char byte = 0;
  ASSERT_EQ(::read(pipe[0], &byte, 1), 1);
  EXPECT_FALSE(commit("b"));  // no room: the child has it all
  EXPECT_TRUE(store_->remove("a"));
  EXPECT_EQ(store_->stats().limbo_bytes, kBlockBytes);
  ::kill(child, SIGKILL);
  EXPECT_EQ(wait_for(child), 1000 + SIGKILL);
  EXPECT_EQ(store_->stats().limbo_bytes, kBlockBytes);  // a closed process proves nothing yet
  store_->drop_client(client);
  EXPECT_EQ(store_->stats().limbo_bytes, 0u);
  EXPECT_TRUE(commit("b"));
  ::close(pipe[0]);
  ::close(pipe[1]);
}

TEST_F(SharedReaderTest, AClientThatKeepsTooMuchDyingMissesUntilItLetsGo) {
  open(8);
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(commit("k" + std::to_string(i)));
  TouchClock clock(real_clock());
  auto reader = SharedStoreReader::open(store_->add_client().value(), clock).value();
  std::vector<Pin> pins;
  for (int i = 0; i < 3; ++i) pins.push_back(reader->lookup("k" + std::to_string(i)).value());
  for (int i = 0; i < 2; ++i) EXPECT_TRUE(store_->remove("k" + std::to_string(i)));
  EXPECT_EQ(store_->stats().limbo_bytes, 2 * kBlockBytes);
  EXPECT_TRUE(reader->lookup("k3"));  // a quarter of the memory may be dying
  EXPECT_TRUE(store_->remove("k2"));
  EXPECT_EQ(store_->stats().limbo_bytes, 3 * kBlockBytes);
  EXPECT_FALSE(reader->lookup("k3"));
  EXPECT_TRUE(store_->lookup("k3"));
  pins.clear();
  EXPECT_EQ(store_->stats().limbo_bytes, 0u);
  EXPECT_TRUE(reader->lookup("k3"));
}

TEST_F(SharedReaderTest, AnothersTouchesKeepAnObject) {
  ManualClock time;
  open(3, time);
  for (const char* key : {"a", "b", "c"}) ASSERT_TRUE(commit(key));
  time.advance(std::chrono::milliseconds(1));
  TouchClock clock(time);
  auto reader = SharedStoreReader::open(store_->add_client().value(), clock).value();
  EXPECT_TRUE(reader->lookup("a"));
  ASSERT_TRUE(commit("d"));
  EXPECT_TRUE(store_->lookup("a"));
  EXPECT_FALSE(store_->lookup("b"));
  store_.reset();  // before its clock
}

TEST_F(SharedReaderTest, DamagedBytesWithAChecksumAreAMissAndCounted) {
  open(8);
  const std::string content(kBlockBytes, 'x');
  ASSERT_TRUE(store_->put(ObjectClass::kBlock, "a", std::as_bytes(std::span(content))));
  ASSERT_TRUE(store_->put(ObjectClass::kBlock, "b", std::as_bytes(std::span(content))));
  ClientFiles files = store_->add_client().value();
  const UniqueFd segment_file = files.open_segment(0).value();
  TouchClock clock(real_clock());
  auto reader = SharedStoreReader::open(std::move(files), clock).value();
  const Pin pin = reader->lookup("a").value();
  // Another writer's mistake: a byte changes in the segment, under both objects.
  Mapping segment =
      Mapping::map(segment_file.get(), sizeof(SegmentHeader) + 8 * kBlockBytes, Mapping::Access::kReadWrite, "segment")
          .value();
  for (std::byte& byte : segment.bytes().subspan(sizeof(SegmentHeader))) byte ^= std::byte{1};
  EXPECT_EQ(reader->size_of("b"), static_cast<std::int64_t>(kBlockBytes)) << "a size needs no look at the bytes";
  EXPECT_EQ(reader->damaged_found(), 0u);
  EXPECT_FALSE(reader->lookup("b"));
  EXPECT_EQ(reader->damaged_found(), 1u);
  EXPECT_EQ(reader->size_of("c"), SharedStoreReader::kMissed);
  EXPECT_TRUE(reader->lookup("a"));  // verified before; once is the promise
}

TEST_F(SharedReaderTest, EntriesThatPointOutsideAreAMiss) {
  open(8);
  ASSERT_TRUE(commit("a"));
  ASSERT_TRUE(commit(std::string(200, 'l')));
  ClientFiles files = store_->add_client().value();
  const UniqueFd index_file(::dup(files.index.get()));
  TouchClock clock(real_clock());
  auto reader = SharedStoreReader::open(std::move(files), clock).value();
  Mapping head = Mapping::map(index_file.get(), sizeof(IndexHeader), Mapping::Access::kRead, "index").value();
  const auto header = *reinterpret_cast<const std::uint64_t*>(head.data() + offsetof(IndexHeader, file_bytes));
  Mapping index = Mapping::map(index_file.get(), header, Mapping::Access::kReadWrite, "index").value();
  auto* entries = reinterpret_cast<IndexEntry*>(
      index.data() + *reinterpret_cast<const std::uint64_t*>(head.data() + offsetof(IndexHeader, entries_offset)));
  const std::uint64_t location = entries[0].location.load(), extent = entries[0].extent.load();
  for (const std::uint64_t bad :
       {std::uint64_t{8 * kBlockBytes}, (std::uint64_t{1} << 48) - 1, std::uint64_t{1} << 48}) {
    entries[0].location.store(bad);
    EXPECT_FALSE(reader->lookup("a")) << bad;
  }
  entries[0].location.store(location);
  entries[0].extent.store(extent | ((std::uint64_t{1} << 47) - 1));
  EXPECT_FALSE(reader->lookup("a"));
  entries[0].extent.store(extent);
  EXPECT_TRUE(reader->lookup("a"));
  entries[1].key[0].store(~std::uint64_t{0} >> 16);
  EXPECT_FALSE(reader->lookup(std::string(200, 'l')));
  EXPECT_EQ(store_->stats().pins, 0u);
}

TEST_F(SharedReaderTest, FilesThatDoNotBelongTogetherAreRefused) {
  open(8);
  TouchClock clock(real_clock());
  open(8);
  const std::unique_ptr<EmbeddedStore> first = std::move(store_);
  open(8);
  const auto refused = [&](const std::function<void(ClientFiles&)>& spoil) {
    ClientFiles files = first->add_client().value();
    spoil(files);
    const auto reader = SharedStoreReader::open(std::move(files), clock);
    return reader ? std::nullopt : std::optional(reader.error().code);
  };
  EXPECT_EQ(refused([](ClientFiles&) {}), std::nullopt);
  EXPECT_EQ(refused([&](ClientFiles& files) { files.pins = std::move(store_->add_client().value().pins); }),
            ErrorCode::kVersionMismatch);
  EXPECT_EQ(refused([](ClientFiles& files) { std::swap(files.index, files.pins); }), ErrorCode::kCorrupt);
  EXPECT_EQ(refused([](ClientFiles& files) { files.pins = std::move(files.open_segment(0).value()); }),
            ErrorCode::kCorrupt);
  EXPECT_TRUE(refused([](ClientFiles& files) { files.index = UniqueFd(); }));
}

TEST_F(SharedReaderTest, SegmentsThatDoNotBelongToTheIndexAreAMiss) {
  TouchClock clock(real_clock());
  open(8);
  const std::unique_ptr<EmbeddedStore> first = std::move(store_);
  open(8);
  ASSERT_TRUE(commit("a"));
  ClientFiles files = store_->add_client().value();
  files.open_segment = first->add_client().value().open_segment;
  auto reader = SharedStoreReader::open(std::move(files), clock).value();
  EXPECT_TRUE(reader->contains("a"));
  EXPECT_FALSE(reader->lookup("a"));
}

}  // namespace
}  // namespace nmc::store
