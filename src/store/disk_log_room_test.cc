// The cap holds at every step, compaction keeps what fits, and dropping starts with the oldest.
#include <gtest/gtest.h>

#include <map>
#include <random>

#include "store/disk_log_test_support.h"

namespace nmc::store {
namespace {

// Appends, removals, reads, restarts against a map. An object may be missing from the log only if the log says it
// dropped that many; `keeps_all` says that it may drop none.
void run_against_model(const DiskLogOptions& options, std::uint64_t seed, int steps, std::size_t keys,
                       std::size_t bytes_max, bool keeps_all) {
  SCOPED_TRACE(fmt::format("seed {}", seed));
  Rng rng(seed);
  std::map<std::string, std::string> model;
  std::uint64_t missing_allowed = 0;
  std::unique_ptr<DiskLog> log = *DiskLog::open(options);
  const auto read = [&](const std::string& key) {
    std::string payload(log->size_of(key).value_or(0), '\0');
    return log->read(key, std::as_writable_bytes(std::span(payload.data(), payload.size()))) ? payload : "-";
  };
  for (int step = 0; step < steps; ++step) {
    const std::string key = fmt::format("key{}", rng.below(keys));
    const std::uint64_t choice = rng.below(100);
    if (choice < 45) {
      std::map<std::string, std::string> batch{{key, content(rng.next(), rng.below(bytes_max))}};
      while (rng.below(3) == 0)
        batch[fmt::format("key{}", rng.below(keys))] = content(rng.next(), rng.below(bytes_max));
      std::vector<DiskItem> items;
      for (const auto& [item_key, payload] : batch) items.push_back({item_key, as_bytes(payload)});
      const auto sequence = log->append(items);
      ASSERT_TRUE(sequence) << sequence.error().to_string();
      ASSERT_EQ(log->flush_mark(), *sequence);
      for (const auto& [item_key, payload] : batch) model[item_key] = payload;
    } else if (choice < 60) {
      const bool there = log->contains(key);
      ASSERT_EQ(*log->remove(key), there);
      model.erase(key);
    } else if (choice < 97) {
      const auto expected = model.find(key);
      const std::string payload = log->contains(key) ? read(key) : "-";
      const bool right = payload == "-" || (expected != model.end() && payload == expected->second);
      ASSERT_TRUE(right) << key << " at step " << step;
    } else {
      missing_allowed += log->stats().dropped_objects;
      log.reset();
      log = *DiskLog::open(options);
    }
    ASSERT_LE(folder_bytes(options.folder), options.bytes_max) << "at step " << step;
    ASSERT_EQ(log->stats().quarantined_entries, 0u) << log->stats().quarantine_reasons.back();
    ASSERT_EQ(log->stats().errors, 0u);
    const std::uint64_t dropped = missing_allowed + log->stats().dropped_objects;
    ASSERT_LE(log->stats().objects, model.size());
    ASSERT_GE(log->stats().objects + dropped, model.size());
    if (keeps_all) {
      ASSERT_EQ(dropped, 0u) << "at step " << step;
    }
  }
  std::uint64_t live_bytes = 0;
  for (const auto& [key, payload] : model) {
    if (!log->contains(key)) continue;
    ASSERT_EQ(read(key), payload) << key;
    live_bytes += payload.size();
  }
  EXPECT_EQ(log->stats().live_bytes, live_bytes);
}

TEST_F(DiskLogTest, AgreesWithANaiveModelWhileFarTooMuchIsWritten) {
  options_.bytes_max = 256 << 10;
  options_.file_bytes = 16 << 10;
  run_against_model(options_, std::random_device()(), 6000, 400, 3000, false);
}

TEST_F(DiskLogTest, CompactionKeepsAllThatFits) {
  options_.bytes_max = 512 << 10;
  options_.file_bytes = 32 << 10;
  options_.quarantine_bytes_max = 0;
  // Lives at most: 150 objects of 2,000 bytes and some, of about 470 KiB for data.
  run_against_model(options_, std::random_device()(), 6000, 150, 2000, true);
}

TEST_F(DiskLogTest, CompactionKeepsTheNumberOfFilesLow) {
  options_.bytes_max = 1 << 20;
  options_.file_bytes = 16 << 10;
  open();
  Rng rng(7);
  // One object in each file lives on while the rest is written over.
  for (int i = 0; i < 4000; ++i) {
    const bool stays = i % 12 == 0 && i < 1200;
    ASSERT_TRUE(put(stays ? fmt::format("stays{}", i) : fmt::format("k{}", rng.below(20)), content(i, 1000)));
  }
  EXPECT_EQ(log_->stats().dropped_objects, 0u);
  EXPECT_LE(log_->stats().files, 3 * (options_.bytes_max / options_.file_bytes) / 2);
  for (int i = 0; i < 1200; i += 12) EXPECT_EQ(get(fmt::format("stays{}", i)), content(i, 1000));
}

TEST_F(DiskLogTest, DropsTheOldestFirstAndGivesWhatWasReadASecondChance) {
  options_.bytes_max = 256 << 10;
  options_.file_bytes = 16 << 10;
  open();
  ASSERT_TRUE(put("unread", content(1, 1000)));
  ASSERT_TRUE(put("read", content(2, 1000)));
  int i = 0;
  for (; log_->stats().dropped_objects == 0; ++i) {
    EXPECT_EQ(get("read"), content(2, 1000));
    ASSERT_TRUE(put(fmt::format("filler{}", i), content(i, 1000)));
  }
  EXPECT_EQ(get("unread"), "-");
  EXPECT_EQ(get("read"), content(2, 1000));
  EXPECT_EQ(get(fmt::format("filler{}", i - 1)), content(i - 1, 1000));
}

TEST_F(DiskLogTest, ATombstoneHoldsHoweverFilesAreRewritten) {
  options_.bytes_max = 256 << 10;
  options_.file_bytes = 16 << 10;
  open();
  ASSERT_TRUE(put("removed", "old"));
  for (int i = 0; i < 8; ++i) ASSERT_TRUE(put(fmt::format("pad{}", i), content(i, 2000)));
  ASSERT_TRUE(*log_->remove("removed"));
  std::uint64_t compacted_bytes = 0;
  Rng rng(3);
  for (int i = 0; i < 2000; ++i) {
    ASSERT_TRUE(put(fmt::format("k{}", rng.below(60)), content(i, 2000)));
    if (i % 50 != 0) continue;
    compacted_bytes += log_->stats().compacted_bytes;
    crash();
    open();
    ASSERT_EQ(get("removed"), "-") << i;
  }
  EXPECT_GT(compacted_bytes, 0u);
}

TEST_F(DiskLogTest, AShrunkenCapHoldsFromTheStart) {
  options_.bytes_max = 1 << 20;
  open();
  for (int i = 0; i < 700; ++i) ASSERT_TRUE(put(fmt::format("k{}", i), content(i, 1000)));
  close();
  options_.bytes_max = 256 << 10;
  open();
  EXPECT_LE(folder_bytes(options_.folder), options_.bytes_max);
  EXPECT_GT(log_->stats().dropped_objects, 0u);
  EXPECT_EQ(get("k699"), content(699, 1000));
}

}  // namespace
}  // namespace nmc::store
