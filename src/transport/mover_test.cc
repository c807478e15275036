#include "transport/mover.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <thread>

#include "base/failpoint.h"
#include "base/rng.h"

namespace nmc::transport {
namespace {

class MoverTest : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    MoverOptions options{.message_bytes_max = std::size_t{64} << 20};
    auto made = GetParam() == std::string("shm") ? create_shm_mover(options) : create_tcp_mover(options);
    ASSERT_TRUE(made) << made.error().message;
    mover_ = std::move(*made);
  }
  void TearDown() override { disarm_failpoints(); }

  // A message whose every byte depends on its id.
  Result<void> send(std::uint64_t id, std::size_t size) {
    NMC_ASSIGN_OR_RETURN(Buffer buffer, mover_->allocate(size));
    Rng rng(id);
    for (std::byte& byte : buffer.bytes()) byte = static_cast<std::byte>(rng.next());
    return mover_->send(id, std::move(buffer));
  }
  static bool right(const Buffer& buffer, std::uint64_t id, std::size_t size) {
    Rng rng(id);
    return buffer.bytes().size() == size &&
           std::all_of(buffer.bytes().begin(), buffer.bytes().end(),
                       [&](std::byte byte) { return byte == static_cast<std::byte>(rng.next()); });
  }

  std::unique_ptr<Mover> mover_;
};

TEST_P(MoverTest, ArrivesByteForByteAtEverySize) {
  std::uint64_t id = 1;
  for (const std::size_t size : {0ul, 1ul, 31ul, 4096ul, 1'000'001ul, 20ul << 20}) {
    ASSERT_TRUE(send(id, size));
    auto got = mover_->receive(id);
    ASSERT_TRUE(got) << got.error().message;
    EXPECT_TRUE(right(*got, id, size)) << size;
    ++id;
  }
}

TEST_P(MoverTest, ReceivesInAnyOrder) {
  for (std::uint64_t id = 1; id <= 3; ++id) ASSERT_TRUE(send(id, 1000 * id));
  for (const std::uint64_t id : {3, 1, 2}) {
    auto got = mover_->receive(id);
    ASSERT_TRUE(got) << got.error().message;
    EXPECT_TRUE(right(*got, id, 1000 * id));
  }
}

TEST_P(MoverTest, ReceiverMayWaitBeforeTheSenderHasFinished) {
  if (GetParam() == std::string("shm")) return;  // a segment is there whole or not at all
  std::thread sender([&] { ASSERT_TRUE(send(9, 8 << 20)); });
  auto got = mover_->receive(9);
  sender.join();
  ASSERT_TRUE(got) << got.error().message;
  EXPECT_TRUE(right(*got, 9, 8 << 20));
}

TEST_P(MoverTest, CountersEqualThePayload) {
  ASSERT_TRUE(send(1, 12345));
  ASSERT_TRUE(mover_->receive(1));
  const MoverCounters counters = mover_->counters();
  EXPECT_EQ(counters.bytes_sent, 12345u);
  EXPECT_EQ(counters.bytes_received, 12345u);
  EXPECT_EQ(counters.messages_sent, 1u);
  EXPECT_EQ(counters.messages_received, 1u);
}

TEST_P(MoverTest, DiscardedMessagesAreDroppedAndOthersArrive) {
  ASSERT_TRUE(send(1, 1 << 20));
  mover_->discard(1);
  ASSERT_TRUE(send(2, 1 << 20));
  auto got = mover_->receive(2);
  ASSERT_TRUE(got) << got.error().message;
  EXPECT_TRUE(right(*got, 2, 1 << 20));
}

TEST_P(MoverTest, TooLargeIsRefusedBeforeMemoryIsTaken) {
  const auto refused = mover_->allocate(std::size_t{1} << 40);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kInvalidArgument);
}

TEST_P(MoverTest, GoesOnAfterAFailedSend) {
  arm_failpoint(std::string("transport.") + GetParam() + ".send", FailpointAction::kError);
  EXPECT_FALSE(send(1, 100));
  ASSERT_TRUE(send(2, 100));
  EXPECT_TRUE(mover_->receive(2));
}

INSTANTIATE_TEST_SUITE_P(Carriers, MoverTest, testing::Values("shm", "tcp"),
                         [](const auto& param) { return std::string(param.param); });

TEST(TcpMoverTest, MessageThatNeverComesEndsAtTheProgressDeadline) {
  auto mover = create_tcp_mover({.progress_deadline = std::chrono::milliseconds(50)});
  ASSERT_TRUE(mover);
  const auto got = (*mover)->receive(7);
  ASSERT_FALSE(got);
  EXPECT_EQ(got.error().code, ErrorCode::kDeadlineExceeded);
}

}  // namespace
}  // namespace nmc::transport
