// Damage on disk is found, quarantined with its reason, and hides nothing but itself.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <random>

#include "store/disk_format.h"
#include "store/disk_log_test_support.h"

namespace nmc::store {
namespace {

using ::testing::HasSubstr;

constexpr std::uint64_t kHead = disk::kFileHeadBytes;

// Three records in a file without a footer; "m" has two items.
class DamageTest : public DiskLogTest {
 protected:
  void SetUp() override {
    DiskLogTest::SetUp();
    open();
    offsets_.push_back(kHead);
    write({{"first", "the first record"}});
    write({{"m1", content(1, 70)}, {"m2", content(2, 45)}});
    write({{"last", content(3, 90)}});
    crash();
    file_ = log_files(options_.folder).at(0);
    pristine_ = bytes_of(file_);
  }

  void write(const std::vector<std::pair<std::string, std::string>>& objects) {
    std::vector<DiskItem> items;
    for (const auto& [key, payload] : objects) items.push_back({key, as_bytes(payload)});
    ASSERT_TRUE(log_->append(items));
    expected_.insert(objects.begin(), objects.end());
    offsets_.push_back(fs::file_size(log_files(options_.folder).back()));
  }

  // Every start finds what the damage left: everything but `hidden`, a reason, and on the next start no new damage.
  void expect_hides_only(const std::vector<std::string>& hidden) {
    open();
    auto stats = log_->stats();
    EXPECT_GE(stats.quarantined_entries, 1u);
    ASSERT_FALSE(stats.quarantine_reasons.empty());
    EXPECT_THAT(stats.quarantine_reasons.back(), HasSubstr(file_.filename().string()));
    for (int start = 0; start < 2; ++start) {
      for (const auto& [key, payload] : expected_) {
        const bool gone = std::find(hidden.begin(), hidden.end(), key) != hidden.end();
        EXPECT_EQ(get(key), gone ? "-" : payload) << key;
      }
      if (start == 0) {
        EXPECT_FALSE(fs::is_empty(options_.folder / "quarantine"));
        open();
        EXPECT_EQ(log_->stats().quarantined_entries, 0u);
      }
    }
  }

  void reset_folder() {
    close();
    for (const Path& path : log_files(options_.folder)) fs::remove(path);
    fs::remove_all(options_.folder / "quarantine");
    overwrite(file_, pristine_);
  }

  std::vector<std::uint64_t> offsets_;  // of the records, and the end
  std::map<std::string, std::string> expected_;
  Path file_;
  std::string pristine_;
};

// Which keys a flipped byte of a record may hide: those of the record, or the one payload it lies in.
std::vector<std::string> keys_of(std::uint64_t record) {
  return record == 1 ? std::vector<std::string>{"m1", "m2"} : std::vector<std::string>{"last"};
}

TEST_F(DamageTest, AtEveryByteOfAMiddleAndOfTheLastRecordIsFoundAndHidesOnlyThatRecord) {
  ASSERT_EQ(offsets_.back(), pristine_.size());
  for (const std::uint64_t record : {1, 2}) {
    const auto parsed = disk::parse_record(as_bytes(pristine_), offsets_[record], [&] {
      std::uint64_t salt;
      std::memcpy(&salt, pristine_.data() + offsets_[record] + 24, sizeof salt);
      return salt;
    }());
    ASSERT_TRUE(parsed) << parsed.error().message;
    for (std::uint64_t at = offsets_[record]; at < offsets_[record + 1]; ++at) {
      SCOPED_TRACE(fmt::format("byte {} of record {}", at - offsets_[record], record));
      reset_folder();
      std::string damaged = pristine_;
      damaged[at] = static_cast<char>(damaged[at] ^ 0x40);
      overwrite(file_, damaged);
      std::vector<std::string> hidden = keys_of(record);
      const std::uint64_t within = at - offsets_[record];
      if (within >= parsed->header.payload_offset()) {
        hidden.clear();  // padding, unless a payload holds it
        for (const auto& entry : parsed->entries) {
          if (within >= entry.offset && within < entry.offset + entry.bytes) hidden = {std::string(entry.key)};
        }
      }
      ASSERT_NO_FATAL_FAILURE(expect_hides_only(hidden));
      if (HasFailure()) return;
    }
  }
}

TEST_F(DamageTest, AtEveryByteOfTheFileHeadIsFoundAndHidesNothing) {
  for (std::uint64_t at = 0; at < kHead; ++at) {
    SCOPED_TRACE(fmt::format("byte {}", at));
    reset_folder();
    std::string damaged = pristine_;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x01);
    overwrite(file_, damaged);
    ASSERT_NO_FATAL_FAILURE(expect_hides_only({}));
    if (HasFailure()) return;
  }
}

TEST_F(DamageTest, InARunOfSectorsHidesWhatLiesThere) {
  std::string damaged = pristine_;
  std::fill(damaged.begin() + 64, damaged.begin() + static_cast<std::ptrdiff_t>(offsets_[2]) - 10, '\0');
  overwrite(file_, damaged);
  expect_hides_only({"first", "m1", "m2"});
}

TEST_F(DamageTest, ATornTailAboveTheMarkIsDroppedQuietly) {
  const std::string record = pristine_.substr(offsets_[2], offsets_[3] - offsets_[2]);
  for (std::size_t cut = 0; cut <= record.size(); ++cut) {
    SCOPED_TRACE(fmt::format("{} bytes of {}", cut, record.size()));
    reset_folder();
    // The process died while it wrote a fourth record, which is a damaged copy of the third here.
    std::string torn = pristine_ + record.substr(0, cut);
    if (cut == record.size()) torn.back() = 'x';
    overwrite(file_, torn);
    open();
    EXPECT_EQ(log_->stats().quarantined_entries, 0u);
    for (const auto& [key, payload] : expected_) EXPECT_EQ(get(key), payload) << key;
    ASSERT_TRUE(put("next", "works"));
    crash();
    open();
    EXPECT_EQ(log_->stats().quarantined_entries, 0u);
    EXPECT_EQ(get("next"), "works");
    if (HasFailure()) return;
  }
}

TEST_F(DamageTest, AFileCutBelowTheMarkIsDamage) {
  for (const std::uint64_t size : {offsets_[2] + 7, offsets_[2], std::uint64_t{40}}) {
    reset_folder();
    fs::resize_file(file_, size);
    SCOPED_TRACE(fmt::format("cut to {}", size));
    size > kHead ? expect_hides_only({"last"}) : expect_hides_only({"first", "m1", "m2", "last"});
  }
}

TEST_F(DamageTest, OfASealedFilesFooterOrTrailerCostsAScanAndNothingElse) {
  open();
  close();  // seals
  const std::string sealed = bytes_of(file_);
  ASSERT_GT(sealed.size(), pristine_.size());
  for (std::size_t at = pristine_.size(); at < sealed.size(); ++at) {
    reset_folder();
    std::string damaged = sealed;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x10);
    overwrite(file_, damaged);
    open();
    for (const auto& [key, payload] : expected_) EXPECT_EQ(get(key), payload) << key << " at " << at;
    EXPECT_EQ(log_->stats().quarantined_entries, 0u);
  }
}

TEST_F(DamageTest, OfAPayloadIsFoundAtReadAndStaysGone) {
  open();
  close();
  std::string damaged = bytes_of(file_);
  const std::size_t at = damaged.find(content(1, 70));
  ASSERT_NE(at, std::string::npos);
  damaged[at + 5] ^= 1;
  overwrite(file_, damaged);
  open();
  EXPECT_EQ(log_->stats().quarantined_entries, 0u) << "the footer hides it from the start";
  EXPECT_EQ(get("m1"), "-");
  EXPECT_FALSE(log_->contains("m1"));
  EXPECT_EQ(get("m2"), content(2, 45));
  EXPECT_EQ(log_->stats().quarantined_entries, 1u);
  EXPECT_THAT(log_->stats().quarantine_reasons.back(), HasSubstr("payload of 70 bytes has checksum"));
  for (int start = 0; start < 2; ++start) {
    open();
    EXPECT_EQ(get("m1"), "-");
    EXPECT_EQ(log_->stats().quarantined_entries, 0u) << "quarantined once";
  }
}

TEST_F(DamageTest, NeverBringsBackAnOlderVersionWhoseTableSurvived) {
  open();
  ASSERT_TRUE(put("first", "second version"));
  crash();
  std::string damaged = bytes_of(file_);
  damaged[damaged.find("second version")] ^= 1;
  overwrite(file_, damaged);
  for (int start = 0; start < 3; ++start) {
    open();
    EXPECT_EQ(get("first"), "-");
  }
}

TEST_F(DamageTest, AnObjectThatLooksLikeARecordIsNotTakenForOne) {
  // A tenant stores the image of a record that names another's key, aligned as records are, in a record whose header is
  // then damaged. It can't know the folder's salt.
  const std::string payload = content(9, 200);
  disk::RecordHeader header{.type = disk::RecordType::kObjects, .entries = 1, .sequence = 99};
  std::vector<std::byte> table;
  disk::append_entry(table, {"first", disk::EntryKind::kObject, 99, disk::kPieceBytes + disk::entry_bytes(5),
                             payload.size(), checksum64(payload)});
  header.table_bytes = static_cast<std::uint32_t>(table.size());
  header.table_checksum = checksum64(table);
  header.payload_bytes = payload.size();
  const disk::Piece piece = disk::encode_record_header(header, 0);
  const auto text = [](std::span<const std::byte> bytes) {
    return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  };
  std::string image = text(piece) + text(table) + payload;
  image.resize(header.record_bytes());
  ASSERT_TRUE(disk::parse_record(as_bytes(image), 0, 0)) << "well-formed but for its salt";

  open();
  const std::string key(56 - disk::kEntryHeadBytes + 8, 'k');  // makes the table 64 bytes, so that the image is aligned
  ASSERT_TRUE(put(key, image));
  crash();
  std::string damaged = bytes_of(file_);
  ASSERT_EQ(damaged.find(image) % disk::kAlignment, 0u);
  damaged[pristine_.size() + 20] ^= 1;
  overwrite(file_, damaged);
  expect_hides_only({});
  EXPECT_EQ(get(key), "-");
}

TEST_F(DamageTest, IsKeptInAQuarantineWithinItsCap) {
  options_.bytes_max = 1 << 20;
  options_.quarantine_bytes_max = 2000;
  for (int round = 0; round < 30; ++round) {
    open();
    ASSERT_TRUE(put("victim", content(round, 500)));
    crash();
    const Path last = log_files(options_.folder).back();
    std::string damaged = bytes_of(last);
    damaged[damaged.find(content(round, 500)) + 1] ^= 1;
    overwrite(last, damaged);
    open();
    EXPECT_EQ(log_->stats().quarantined_bytes, 500u);
    ASSERT_LE(folder_bytes(options_.folder / "quarantine"), 2000u);
    EXPECT_GE(folder_bytes(options_.folder / "quarantine"), 500u);
  }
}

TEST_F(DiskLogTest, SurvivesHostileFiles) {
  open();
  ASSERT_TRUE(put("a", "1"));
  crash();
  const Path file = log_files(options_.folder).at(0);
  const std::string pristine = bytes_of(file);
  const std::uint64_t seed = std::random_device()();
  SCOPED_TRACE(fmt::format("seed {}", seed));
  Rng rng(seed);
  for (int round = 0; round < 300; ++round) {
    std::string hostile = pristine + content(rng.next(), rng.below(3000));
    if (round % 3 == 0) hostile = content(rng.next(), rng.below(3000));
    for (std::uint64_t flips = rng.below(40); flips > 0 && !hostile.empty(); --flips) {
      hostile[rng.below(hostile.size())] = static_cast<char>(rng.below(2) != 0u ? 0xff : rng.next());
    }
    for (const Path& path : log_files(options_.folder)) fs::remove(path);
    overwrite(file, hostile);
    open();
    const std::string a = get("a");
    EXPECT_TRUE(a == "1" || a == "-");
    ASSERT_TRUE(put("b", "2"));
    EXPECT_EQ(get("b"), "2");
    close();
  }
}

TEST_F(DiskLogTest, DropsAFileLargerThanTheLogMayBe) {
  open();
  ASSERT_TRUE(put("a", "1"));
  close();
  options_.bytes_max = 1 << 20;
  fs::resize_file(log_files(options_.folder).at(0), std::uint64_t{1} << 40);
  open();
  EXPECT_EQ(get("a"), "-");
  EXPECT_THAT(log_->stats().quarantine_reasons.at(0), HasSubstr("larger than the log may be"));
}

}  // namespace
}  // namespace nmc::store
