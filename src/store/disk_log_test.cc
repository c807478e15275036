#include "store/disk_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>

#include <array>
#include <atomic>
#include <csignal>
#include <cstring>
#include <thread>

#include "store/disk_log_test_support.h"

namespace nmc::store {
namespace {

using ::testing::HasSubstr;

TEST_F(DiskLogTest, ReadsWhatWasAppended) {
  open();
  const DiskItem run[] = {{"a", as_bytes("alpha")}, {"b", as_bytes("")}, {"c", as_bytes("gamma")}};
  const auto first = log_->append(run);
  ASSERT_TRUE(first);
  EXPECT_EQ(log_->flush_mark(), *first);
  EXPECT_GT(*put("d", content(1, 100'000)), *first);
  EXPECT_EQ(get("a"), "alpha");
  EXPECT_EQ(get("b"), "");
  EXPECT_EQ(get("c"), "gamma");
  EXPECT_EQ(get("d"), content(1, 100'000));
  EXPECT_EQ(get("e"), "-");
  EXPECT_EQ(log_->stats().objects, 4u);
  EXPECT_EQ(log_->stats().live_bytes, 100'010u);
}

TEST_F(DiskLogTest, ANewerAppendSupersedesAndATombstoneRemoves) {
  open();
  ASSERT_TRUE(put("k", "old"));
  ASSERT_TRUE(put("gone", "x"));
  ASSERT_TRUE(put("k", "new"));
  EXPECT_TRUE(*log_->remove("gone"));
  EXPECT_FALSE(*log_->remove("gone"));
  for (int start = 0; start < 3; ++start) {
    EXPECT_EQ(get("k"), "new");
    EXPECT_EQ(get("gone"), "-");
    start == 0 ? crash() : close();
    open();
  }
}

TEST_F(DiskLogTest, RefusesReadsIntoAnotherSize) {
  open();
  ASSERT_TRUE(put("k", "four"));
  std::array<std::byte, 5> buffer;
  EXPECT_FALSE(log_->read("k", buffer));
  EXPECT_FALSE(log_->read("k", std::span(buffer).first(3)));
  EXPECT_EQ(log_->stats().quarantined_entries, 0u);
}

TEST_F(DiskLogTest, RefusesBadArguments) {
  options_.bytes_max = 1 << 20;
  open();
  EXPECT_EQ(log_->append({}).error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(put("", "x").error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(put(std::string(4097, 'k'), "x").error().code, ErrorCode::kInvalidArgument);
  EXPECT_TRUE(put(std::string(4096, 'k'), "x"));
  EXPECT_EQ(put("k", content(1, log_->record_bytes_max())).error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(get(std::string(4096, 'k')), "x");
  close();
  options_.bytes_max = 100;
  EXPECT_THAT(open_error().message, HasSubstr("bytes_max is 100, expected at least 65536"));
}

TEST_F(DiskLogTest, ARecordLargerThanAFileGetsAFileOfItsOwn) {
  options_.bytes_max = 1 << 20;
  open();
  const std::string large = content(1, log_->record_bytes_max() - 1000);
  ASSERT_TRUE(put("small", "s"));
  ASSERT_TRUE(put("large", large));
  ASSERT_TRUE(put("after", "a"));
  for (int start = 0; start < 2; ++start) {
    EXPECT_EQ(get("small"), "s");
    EXPECT_EQ(get("large"), large);
    EXPECT_EQ(get("after"), "a");
    crash();
    open();
  }
}

TEST_F(DiskLogTest, ACleanStartReadsFootersOnly) {
  options_.file_bytes = 8192;
  open();
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(put(fmt::format("k{}", i), content(i, 300)));
  EXPECT_GT(log_->stats().files, 3u);
  close();
  open();
  EXPECT_EQ(log_->stats().replayed_records, 0u);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(get(fmt::format("k{}", i)), content(i, 300));
  crash();
  open();
  EXPECT_GT(log_->stats().replayed_records, 0u) << "the last file had no footer";
  EXPECT_LT(log_->stats().replayed_records, 100u) << "the others had";
}

TEST_F(DiskLogTest, SequenceNumbersGoOnAfterARestart) {
  open();
  const std::uint64_t first = *put("a", "1");
  crash();
  open();
  EXPECT_EQ(log_->flush_mark(), first);
  const std::uint64_t second = *put("b", "2");
  EXPECT_GT(second, first);
  close();
  open();
  EXPECT_EQ(log_->flush_mark(), second);
}

TEST_F(DiskLogTest, RestartsWithoutWritesLeaveNoFilesBehind) {
  open();
  ASSERT_TRUE(put("a", "1"));
  for (int i = 0; i < 5; ++i) open();
  EXPECT_EQ(log_->stats().files, 1u);
  EXPECT_EQ(get("a"), "1");
}

// ---- folder

TEST_F(DiskLogTest, RefusesAnotherVersion) {
  open();
  ASSERT_TRUE(put("a", "1"));
  close();
  const std::string format = bytes_of(options_.folder / "FORMAT");
  std::string other = format;
  other.replace(other.find("version 1"), 9, "version 7");
  overwrite(options_.folder / "FORMAT", other);
  EXPECT_EQ(open_error().code, ErrorCode::kVersionMismatch);
  EXPECT_THAT(open_error().message, HasSubstr("disk log of version 7, expected 1"));
  overwrite(options_.folder / "FORMAT", "rubbish");
  EXPECT_EQ(open_error().code, ErrorCode::kCorrupt);
  fs::remove(options_.folder / "FORMAT");
  EXPECT_EQ(open_error().code, ErrorCode::kCorrupt);

  overwrite(options_.folder / "FORMAT", format);
  const Path file = log_files(options_.folder).at(0);
  std::string bytes = bytes_of(file);
  bytes[8] = 7;  // the version, and a checksum to fit
  const std::uint64_t sum = checksum64(std::string_view(bytes).substr(0, 56));
  std::memcpy(bytes.data() + 56, &sum, sizeof sum);
  overwrite(file, bytes);
  EXPECT_EQ(open_error().code, ErrorCode::kVersionMismatch);
  EXPECT_THAT(open_error().message, HasSubstr(file.filename().string()));
}

TEST_F(DiskLogTest, RefusesAFolderInUseAndNamesItsOwner) {
  open();
  EXPECT_EQ(open_error().code, ErrorCode::kAlreadyExists);
  const std::string owner = fmt::format("in use by process {}", ::getpid());
  const int code = exit_code_of([&] {
    const Error error = open_error();
    return error.code == ErrorCode::kAlreadyExists && error.message.find(owner) != std::string::npos ? 0 : 1;
  });
  EXPECT_EQ(code, 0);
  ASSERT_TRUE(put("still", "works"));
  close();
  open();
  EXPECT_EQ(get("still"), "works");
}

TEST_F(DiskLogTest, IgnoresForeignFilesAndRemovesUnfinishedOnes) {
  open();
  ASSERT_TRUE(put("a", "1"));
  close();
  overwrite(options_.folder / "compaction.tmp", "half");
  overwrite(options_.folder / "notes.txt", "mine");
  overwrite(options_.folder / "log-zz.nmc", "mine");
  open();
  EXPECT_EQ(get("a"), "1");
  EXPECT_FALSE(fs::exists(options_.folder / "compaction.tmp"));
  EXPECT_TRUE(fs::exists(options_.folder / "notes.txt"));
  EXPECT_TRUE(fs::exists(options_.folder / "log-zz.nmc"));
}

// ---- faults

TEST_F(DiskLogTest, AFailedAppendLeavesTheLogAsItWas) {
  open();
  ASSERT_TRUE(put("a", "1"));
  const std::string before = bytes_of(log_files(options_.folder).at(0));
  for (const char* place : {"disklog.append", "disklog.append.partial"}) {
    arm_failpoint(place, FailpointAction::kError);
    const auto failed = put("b", content(1, 500));
    ASSERT_FALSE(failed);
    EXPECT_THAT(failed.error().message, HasSubstr(place));
    EXPECT_EQ(bytes_of(log_files(options_.folder).at(0)), before);
  }
  EXPECT_EQ(log_->stats().errors, 2u);
  EXPECT_EQ(get("a"), "1");
  EXPECT_EQ(get("b"), "-");
  ASSERT_TRUE(put("b", "2"));
  crash();
  open();
  EXPECT_EQ(get("a"), "1");
  EXPECT_EQ(get("b"), "2");
}

TEST_F(DiskLogTest, AFileThatCantBeSealedIsScannedAtTheNextStart) {
  options_.file_bytes = 4096;
  open();
  arm_failpoint("disklog.seal", FailpointAction::kError, 1);
  for (int i = 0; i < 20; ++i) ASSERT_TRUE(put(fmt::format("k{}", i), content(i, 500)));
  EXPECT_EQ(failpoint_fired("disklog.seal"), 1u);
  EXPECT_EQ(log_->stats().errors, 1u);
  close();
  for (int start = 0; start < 2; ++start) {
    open();
    EXPECT_EQ(log_->stats().replayed_records > 0, start == 0) << "sealed by the first start";
    EXPECT_EQ(log_->stats().quarantined_entries, 0u);
    for (int i = 0; i < 20; ++i) EXPECT_EQ(get(fmt::format("k{}", i)), content(i, 500));
  }
}

TEST_F(DiskLogTest, AFailedCompactionFallsBackToDropping) {
  options_.bytes_max = 128 << 10;
  open();
  arm_failpoint("disklog.compact", FailpointAction::kError, 0);
  for (int i = 0; i < 400; ++i) {
    ASSERT_TRUE(put(fmt::format("k{}", i % 20), content(i, 1000)));
    ASSERT_LE(folder_bytes(options_.folder), options_.bytes_max);
  }
  EXPECT_GT(failpoint_fired("disklog.compact"), 0u);
  EXPECT_EQ(get("k19"), content(399, 1000));
}

TEST_F(DiskLogTest, AFailedReadIsAMiss) {
  open();
  ASSERT_TRUE(put("a", "1"));
  arm_failpoint("disklog.read", FailpointAction::kError, 1);
  EXPECT_EQ(get("a"), "-");
  EXPECT_EQ(get("a"), "1") << "an error of the moment isn't damage";
  EXPECT_EQ(log_->stats().errors, 1u);
}

// Runs in a child: fills the folder's file system, then checks that the log holds.
int fill_and_check(const DiskLogOptions& options) {
  auto log = DiskLog::open(options);
  if (!log) return 10;
  int written = 0;
  Result<std::uint64_t> last = std::uint64_t{0};
  for (; written < 10'000; ++written) {
    const std::string key = fmt::format("k{}", written), payload = content(written, 5000);
    const DiskItem item{key, as_bytes(payload)};
    last = (*log)->append({&item, 1});
    if (!last) break;
  }
  if (last || written == 0) return 11;
  const auto reads_all = [&] {
    std::string payload(5000, '\0');
    for (int i = 0; i < written; ++i) {
      const auto bytes = std::as_writable_bytes(std::span(payload.data(), payload.size()));
      if (!(*log)->read(fmt::format("k{}", i), bytes) || payload != content(i, 5000)) return false;
    }
    return true;
  };
  if (!reads_all()) return 12;
  if ((*log)->contains(fmt::format("k{}", written))) return 13;
  log->reset();
  log = DiskLog::open(options);
  if (!log) return 14;
  if (!reads_all()) return 15;
  return (*log)->stats().quarantined_entries == 0 ? 0 : 16;
}

TEST_F(DiskLogTest, AFileSizeLimitIsAnErrorAndReadsGoOn) {
  const int code = exit_code_of([&] {
    std::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{200'000, 200'000};
    if (::setrlimit(RLIMIT_FSIZE, &limit) != 0) return 20;
    return fill_and_check(options_);
  });
  EXPECT_EQ(code, 0);
}

TEST_F(DiskLogTest, AFullDiskIsAnErrorAndReadsGoOn) {
  const int code = exit_code_of([&] {
    fs::create_directory(options_.folder);
    if (::unshare(CLONE_NEWNS) != 0 || ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        ::mount("tmpfs", options_.folder.c_str(), "tmpfs", 0, "size=1m") != 0) {
      return 99;
    }
    options_.file_bytes = 100'000;
    return fill_and_check(options_);
  });
  if (code == 99) GTEST_SKIP() << "mounting isn't permitted here; AFileSizeLimitIsAnErrorAndReadsGoOn covers it";
  EXPECT_EQ(code, 0);
}

// ---- fsync

TEST_F(DiskLogTest, SyncsAsThePolicySays) {
  const auto syncs_after_ten = [&](FsyncPolicy policy) {
    options_.fsync = policy;
    options_.folder = folder_.path() / fmt::format("policy{}", static_cast<int>(policy));
    options_.file_bytes = 4096;
    open();
    for (int i = 0; i < 10; ++i) EXPECT_TRUE(put(fmt::format("k{}", i), content(i, 1000)));
    return log_->stats().syncs;
  };
  EXPECT_EQ(syncs_after_ten(FsyncPolicy::kNever), 0u);
  EXPECT_GE(syncs_after_ten(FsyncPolicy::kOnSeal), 3u);
  EXPECT_LE(log_->stats().syncs, 5u);
  EXPECT_GE(syncs_after_ten(FsyncPolicy::kEachAppend), 10u);
  options_.fsync = FsyncPolicy::kNever;
  ASSERT_TRUE(log_->sync());
}

TEST_F(DiskLogTest, SyncsAnIntervalAfterAWrite) {
  options_.fsync = FsyncPolicy::kInterval;
  options_.fsync_interval = std::chrono::milliseconds(1);
  open();
  ASSERT_TRUE(put("a", "1"));
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (log_->stats().syncs == 0 && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
  EXPECT_EQ(log_->stats().syncs, 1u);
}

// ---- threads

TEST_F(DiskLogTest, ReadsRunBesideAppendsAndCompaction) {
  options_.bytes_max = 256 << 10;
  options_.file_bytes = 16 << 10;
  open();
  std::atomic<bool> done{false};
  std::atomic<int> hits{0};
  // A payload starts with the seed of the rest, so that a reader can tell a right one from any other.
  const auto payload_of = [](std::uint64_t seed) {
    std::string payload = content(seed, 1000);
    std::memcpy(payload.data(), &seed, sizeof seed);
    return payload;
  };
  std::vector<std::thread> readers;
  for (int reader = 0; reader < 2; ++reader) {
    readers.emplace_back([&, reader] {
      Rng draws(reader);
      std::string payload(1000, '\0');
      while (!done.load() || hits.load() == 0) {
        const std::string key = fmt::format("k{}", draws.below(100));
        if (!log_->read(key, std::as_writable_bytes(std::span(payload.data(), payload.size())))) continue;
        std::uint64_t seed;
        std::memcpy(&seed, payload.data(), sizeof seed);
        ASSERT_TRUE(payload == payload_of(seed)) << key;
        hits.fetch_add(1);
      }
    });
  }
  Rng rng(5);
  for (std::uint64_t i = 0; i < 3000; ++i) {
    ASSERT_TRUE(put(fmt::format("k{}", rng.below(100)), payload_of(i)));
    if (i % 17 != 0) continue;
    ASSERT_TRUE(log_->remove(fmt::format("k{}", rng.below(100))));
  }
  done = true;
  for (auto& thread : readers) thread.join();
  EXPECT_GT(log_->stats().compacted_bytes, 0u);
  EXPECT_EQ(log_->stats().quarantined_entries, 0u);
}

}  // namespace
}  // namespace nmc::store
