// The store over its disk tier: what survives, what is dropped, and that removal and restore don't cross.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <latch>
#include <string>
#include <thread>
#include <vector>

#include "base/failpoint.h"
#include "base/files.h"
#include "store/embedded_store.h"

namespace nmc::store {
namespace {

constexpr std::size_t kBlockBytes = 4096;

class StoreDiskTest : public testing::Test {
 protected:
  StoreDiskTest() : folder_(TemporaryFolder::create("nmc-store-test").value()) {}
  ~StoreDiskTest() override {
    release_writer();
    store_.reset();
    disarm_failpoints();
  }

  void open(std::size_t blocks) {
    store_.reset();
    StoreOptions options;
    options.dram_bytes = blocks * kBlockBytes;
    options.block_bytes = kBlockBytes;
    options.tail_bytes = blocks * kBlockBytes / 2;
    options.disk_dir = folder_.path() / "disk";
    options.disk_bytes = std::uint64_t{64} << 20;
    store_ = EmbeddedStore::create(options).value();
  }

  static std::string content(std::string_view text, std::size_t bytes) {
    std::string content(bytes, '\0');
    for (std::size_t i = 0; i < bytes; ++i) content[i] = text[i % text.size()];
    return content;
  }
  static std::string_view text_of(const Pin& pin) {
    return {reinterpret_cast<const char*>(pin.bytes().data()), pin.bytes().size()};
  }
  void put(ObjectClass object_class, std::string_view key, std::string_view text, std::size_t bytes = kBlockBytes) {
    const std::string filled = content(text, bytes);
    ASSERT_TRUE(store_->put(object_class, key, std::as_bytes(std::span(filled))));
  }
  void put_block(std::string_view key) { put(ObjectClass::kBlock, key, key); }
  std::vector<std::string> put_chain(std::size_t blocks) {
    std::vector<std::string> keys;
    for (std::size_t i = 0; i < blocks; ++i) keys.push_back("k" + std::to_string(i));
    for (const std::string& key : keys) {
      put_block(key);
      // All of it shall be written: the queue of so small a store is short.
      if (held_ == nullptr && blocks > 3) {
        EXPECT_TRUE(store_->flush());
      }
    }
    return keys;
  }
  // "" a miss, "memory", "disk", or "wrong bytes".
  std::string fetch(std::string_view key, std::string_view text, ObjectClass object_class = ObjectClass::kBlock,
                    std::size_t bytes = kBlockBytes) {
    const std::optional<Pin> pin = store_->fetch(key, object_class, bytes);
    if (!pin) return "";
    if (text_of(*pin) != content(text, bytes)) return "wrong bytes";
    return pin->source() == Source::kDisk ? "disk" : "memory";
  }
  std::string fetch_block(std::string_view key) { return fetch(key, key); }
  void expect_run(const std::vector<std::string>& keys, std::size_t blocks, std::size_t from_disk) {
    const store::Run run = store_->fetch_run(keys);
    ASSERT_EQ(run.pins.size(), blocks) << run.stop_reason;
    EXPECT_EQ(run.from_disk, from_disk);
    for (std::size_t i = 0; i < blocks; ++i) EXPECT_EQ(text_of(run.pins[i]), content(keys[i], kBlockBytes)) << i;
  }

  // The writer stops before its next append, having let go of its batch's pins, until release_writer().
  void hold_writer() {
    held_ = std::make_unique<std::latch>(1);
    arm_failpoint("disk.append", FailpointAction::kCount, 0, [this] { held_->wait(); });
  }
  void release_writer() {
    if (held_ != nullptr && !held_->try_wait()) held_->count_down();
  }
  void hold_writer_with_a_batch(std::string_view key) {
    hold_writer();
    put_block(key);
    while (failpoint_fired("disk.append") == 0) std::this_thread::yield();
  }

  TemporaryFolder folder_;
  std::unique_ptr<std::latch> held_;
  std::unique_ptr<EmbeddedStore> store_;
};

TEST_F(StoreDiskTest, WhatWasCommittedIsThereAfterARestart) {
  open(8);
  const auto chain = put_chain(4);
  put(ObjectClass::kTail, "tail", "t", 1000);
  put(ObjectClass::kObject, std::string(300, 'o'), "o", 777);
  ASSERT_TRUE(store_->flush());
  EXPECT_EQ(store_->stats().disk_objects, 6u);
  open(8);
  EXPECT_EQ(store_->stats().objects, 0u);
  EXPECT_EQ(store_->probe_run(chain), 4u);
  expect_run(chain, 4, 4);
  expect_run(chain, 4, 0);
  EXPECT_EQ(fetch("tail", "t", ObjectClass::kTail, 1000), "disk");
  EXPECT_EQ(fetch(std::string(300, 'o'), "o", ObjectClass::kObject, 777), "disk");
  const StoreStats stats = store_->stats();
  EXPECT_TRUE(stats.disk);
  EXPECT_EQ(stats.disk_hits, 6u);
  EXPECT_EQ(stats.disk_read_bytes, 4 * kBlockBytes + 1777);
  EXPECT_EQ(stats.disk_written_bytes, 0u);  // what came from disk isn't written again
}

TEST_F(StoreDiskTest, DestructionFlushes) {
  open(8);
  const auto chain = put_chain(3);
  open(8);
  EXPECT_EQ(store_->probe_run(chain), 3u);
}

TEST_F(StoreDiskTest, WhatWasFlushedSurvivesTheProcess) {
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    open(8);
    put_chain(4);
    const bool flushed = store_->flush().has_value();
    ::_exit(flushed ? 0 : 1);  // no destructor runs
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_EQ(status, 0);
  open(8);
  expect_run({"k0", "k1", "k2", "k3"}, 4, 4);
}

TEST_F(StoreDiskTest, ARunMixesMemoryAndDisk) {
  open(8);
  const auto chain = put_chain(6);
  ASSERT_TRUE(store_->flush());
  open(8);
  EXPECT_EQ(fetch_block("k1"), "disk");
  EXPECT_EQ(fetch_block("k4"), "disk");
  expect_run(chain, 6, 4);
}

TEST_F(StoreDiskTest, ARestoreDoesNotEvictLaterBlocksOfItsChain) {
  open(4);
  const auto chain = put_chain(4);
  ASSERT_TRUE(store_->flush());
  for (const char* key : {"x", "y"}) put_block(key);
  EXPECT_TRUE(store_->lookup("k2"));  // k0 and k1 went; k2 and k3 are the oldest but for this
  expect_run(chain, 4, 2);
}

TEST_F(StoreDiskTest, AChainLongerThanMemoryIsReadAsFarAsItFits) {
  open(8);
  const auto chain = put_chain(8);
  ASSERT_TRUE(store_->flush());
  open(3);
  EXPECT_EQ(fetch_block("k7"), "disk");
  const store::Run run = store_->fetch_run(chain);
  EXPECT_EQ(run.pins.size(), 3u);
  EXPECT_THAT(run.stop_reason, testing::HasSubstr("pinned"));
}

TEST_F(StoreDiskTest, AWrongSizeIsAMiss) {
  open(8);
  put(ObjectClass::kObject, "k0", "k0", 100);
  EXPECT_EQ(fetch_block("k0"), "");
  EXPECT_THAT(store_->fetch_run(std::vector<std::string>{"k0"}).stop_reason, testing::HasSubstr("100 bytes in memory"));
  open(8);
  EXPECT_EQ(fetch_block("k0"), "");
  EXPECT_EQ(store_->probe_run(std::vector<std::string>{"k0"}), 0u);
  EXPECT_EQ(store_->fetch_run(std::vector<std::string>{"k0"}).pins.size(), 0u);
  EXPECT_EQ(fetch("k0", "k0", ObjectClass::kObject, 100), "disk");
}

TEST_F(StoreDiskTest, RemovedIsGoneFromMemoryAndDisk) {
  open(8);
  put_chain(2);
  ASSERT_TRUE(store_->flush());
  EXPECT_TRUE(store_->remove("k0"));
  EXPECT_FALSE(store_->remove("k0"));
  EXPECT_EQ(fetch_block("k0"), "");
  open(8);
  EXPECT_EQ(fetch_block("k0"), "");
  EXPECT_TRUE(store_->remove("k1"));  // on disk only
  open(8);
  EXPECT_EQ(fetch_block("k1"), "");
  EXPECT_EQ(store_->stats().disk_objects, 0u);
}

TEST_F(StoreDiskTest, RemovedBeforeItWasWrittenIsNeverWritten) {
  open(8);
  hold_writer_with_a_batch("first");
  put_block("queued");
  EXPECT_TRUE(store_->remove("queued"));
  release_writer();
  open(8);
  EXPECT_EQ(fetch_block("queued"), "");
  EXPECT_EQ(fetch_block("first"), "disk");
}

TEST_F(StoreDiskTest, RemovedWhileItIsWrittenIsGoneAfterwards) {
  open(8);
  hold_writer_with_a_batch("k");
  std::thread remover([this] { EXPECT_TRUE(store_->remove("k")); });
  while (store_->lookup("k")) std::this_thread::yield();
  EXPECT_EQ(fetch_block("k"), "");
  put_block("k");  // anew, behind the removal
  release_writer();
  remover.join();
  EXPECT_EQ(fetch_block("k"), "memory");
  ASSERT_TRUE(store_->flush());
  open(8);
  EXPECT_EQ(fetch_block("k"), "disk");
}

TEST_F(StoreDiskTest, ARemovalDuringARestoreWins) {
  open(8);
  put_chain(1);
  open(8);
  arm_failpoint("disk.read", FailpointAction::kCount, 1, [this] { EXPECT_TRUE(store_->remove("k0")); });
  EXPECT_EQ(fetch_block("k0"), "");
  EXPECT_FALSE(store_->lookup("k0"));
  EXPECT_EQ(store_->stats().reservations, 0u);
  EXPECT_EQ(store_->stats().used_bytes, 0u);
}

TEST_F(StoreDiskTest, ANewObjectDuringARestoreWins) {
  open(8);
  put(ObjectClass::kObject, "o", "old", 100);
  open(8);
  arm_failpoint("disk.read", FailpointAction::kCount, 1, [this] { put(ObjectClass::kObject, "o", "new", 100); });
  EXPECT_EQ(fetch("o", "new", ObjectClass::kObject, 100), "memory");
  open(8);
  EXPECT_EQ(fetch("o", "new", ObjectClass::kObject, 100), "disk");
}

TEST_F(StoreDiskTest, AFullQueueDropsTheOldestWriteAndCommitsGoOn) {
  open(16);  // the queue holds half of it
  hold_writer_with_a_batch("first");
  put_chain(10);
  EXPECT_EQ(store_->stats().disk_write_dropped, 2u);
  EXPECT_EQ(store_->stats().blocks_cached, 11u);
  release_writer();
  open(16);
  EXPECT_EQ(fetch_block("k0"), "");
  EXPECT_EQ(fetch_block("k1"), "");
  EXPECT_EQ(fetch_block("k2"), "disk");
  EXPECT_EQ(fetch_block("k9"), "disk");
}

TEST_F(StoreDiskTest, QueuedWritesGiveWayToMemoryPressure) {
  open(8);
  hold_writer_with_a_batch("first");
  put_chain(2);
  EXPECT_EQ(store_->blocks_available(), 8u);
  EXPECT_EQ(store_->stats().blocks_pinned, 0u);
  EXPECT_TRUE(store_->reserve_blocks(8));
  EXPECT_EQ(store_->stats().disk_write_dropped, 2u);
}

TEST_F(StoreDiskTest, ADroppedWriteLeavesNoOlderObjectOfItsName) {
  open(8);
  put(ObjectClass::kObject, "o", "old", 100);
  open(8);
  hold_writer_with_a_batch("first");
  put(ObjectClass::kObject, "o", "new", 100);
  EXPECT_TRUE(store_->reserve_blocks(8));
  EXPECT_EQ(fetch("o", "old", ObjectClass::kObject, 100), "");
  release_writer();
  open(8);
  EXPECT_EQ(fetch("o", "old", ObjectClass::kObject, 100), "");
}

TEST_F(StoreDiskTest, AFailedWriteIsCountedAndMemoryServesOn) {
  open(8);
  arm_failpoint("disk.append", FailpointAction::kError, 1);
  put_block("k0");
  while (store_->stats().disk_errors == 0) std::this_thread::yield();  // it failed before anybody flushed
  EXPECT_EQ(store_->flush().error().code, ErrorCode::kIo);
  EXPECT_EQ(store_->stats().disk_errors, 1u);
  EXPECT_EQ(fetch_block("k0"), "memory");
  put_block("k1");
  EXPECT_TRUE(store_->flush());
}

TEST_F(StoreDiskTest, AFailedReadEndsTheRunWithItsReason) {
  open(8);
  const auto chain = put_chain(3);
  for (const char* place : {"disk.read", "store.restore", "store.commit", "store.reserve"}) {
    open(8);
    EXPECT_EQ(fetch_block("k0"), "disk");
    arm_failpoint(place, FailpointAction::kError, 1);
    const store::Run run = store_->fetch_run(chain);
    EXPECT_EQ(run.pins.size(), 1u) << place;
    EXPECT_THAT(run.stop_reason, testing::HasSubstr(place));
    EXPECT_EQ(store_->stats().reservations, 0u);
    EXPECT_EQ(failpoint_fired(place), 1u);
    disarm_failpoints();
  }
}

TEST_F(StoreDiskTest, AFolderInUseIsRefused) {
  open(8);
  StoreOptions options = store_->options();
  EXPECT_EQ(EmbeddedStore::create(options).error().code, ErrorCode::kAlreadyExists);
}

}  // namespace
}  // namespace nmc::store
