#include "base/syscall.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>

namespace nmc {
namespace {

using testing::HasSubstr;

bool is_open(int fd) { return ::fcntl(fd, F_GETFD) != -1; }

UniqueFd open_null() { return UniqueFd(::open("/dev/null", O_RDWR | O_CLOEXEC)); }

TEST(OsError, NamesCallObjectAndReason) {
  const Error error = os_error("open", "/x/y", ENOENT);
  EXPECT_EQ(error.code, ErrorCode::kNotFound);
  EXPECT_EQ(error.message, "open /x/y: No such file or directory");
}

TEST(OsError, MapsToTheNearestCode) {
  const std::pair<int, ErrorCode> rows[] = {
      {ENOENT, ErrorCode::kNotFound},
      {EEXIST, ErrorCode::kAlreadyExists},
      {EADDRINUSE, ErrorCode::kAlreadyExists},
      {EACCES, ErrorCode::kPermissionDenied},
      {EROFS, ErrorCode::kPermissionDenied},
      {ENOSPC, ErrorCode::kResourceExhausted},
      {ENOMEM, ErrorCode::kResourceExhausted},
      {EMFILE, ErrorCode::kResourceExhausted},
      {EPIPE, ErrorCode::kUnavailable},
      {ECONNREFUSED, ErrorCode::kUnavailable},
      {ETIMEDOUT, ErrorCode::kDeadlineExceeded},
      {EINVAL, ErrorCode::kInvalidArgument},
      {EISDIR, ErrorCode::kInvalidArgument},
      {EIO, ErrorCode::kIo},
  };
  for (const auto& [number, code] : rows) {
    EXPECT_STREQ(error_code_name(os_error("call", "thing", number).code), error_code_name(code)) << number;
  }
}

TEST(RetryOnEintr, RepeatsOnlyInterruptedCalls) {
  int calls = 0;
  const int value = retry_on_eintr([&] {
    errno = EINTR;
    return ++calls < 3 ? -1 : 42;
  });
  EXPECT_EQ(value, 42);
  EXPECT_EQ(calls, 3);

  calls = 0;
  EXPECT_EQ(retry_on_eintr([&] {
              errno = EIO;
              return ++calls, -1;
            }),
            -1);
  EXPECT_EQ(calls, 1);
}

TEST(UniqueFdTest, ClosesOnceAtItsEnd) {
  int number = -1;
  {
    const UniqueFd fd = open_null();
    ASSERT_TRUE(fd);
    number = fd.get();
    EXPECT_TRUE(is_open(number));
  }
  EXPECT_FALSE(is_open(number));
}

TEST(UniqueFdTest, MovesOwnership) {
  UniqueFd a = open_null();
  const int number = a.get();
  UniqueFd b = std::move(a);
  EXPECT_EQ(b.get(), number);
  EXPECT_TRUE(is_open(number));
  b = UniqueFd();
  EXPECT_FALSE(is_open(number));
}

TEST(UniqueFdTest, ReleasedStaysOpen) {
  UniqueFd fd = open_null();
  const UniqueFd owner(fd.release());
  EXPECT_FALSE(fd);
  EXPECT_TRUE(is_open(owner.get()));
}

TEST(MappingTest, AnonymousIsZeroedAndAligned) {
  constexpr std::size_t kSize = (9u << 20) + 1;  // above the size at which huge pages are asked for
  Mapping mapping = *Mapping::anonymous(kSize);
  ASSERT_EQ(mapping.size(), kSize);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(mapping.data()) % 4096, 0u);
  EXPECT_TRUE(std::ranges::all_of(mapping.bytes(), [](std::byte byte) { return byte == std::byte{0}; }));
  mapping.bytes().back() = std::byte{1};
}

TEST(MappingTest, OfNothingIsEmpty) {
  EXPECT_EQ(Mapping::anonymous(0)->data(), nullptr);
  EXPECT_EQ(Mapping::map(-1, 0, Mapping::Access::kRead, "nothing")->size(), 0u);
}

TEST(MappingTest, ImpossibleSizesAndDescriptorsAreErrors) {
  const auto huge = Mapping::anonymous(std::size_t{1} << 60);
  ASSERT_FALSE(huge);
  EXPECT_EQ(huge.error().code, ErrorCode::kResourceExhausted);
  const auto unopened = Mapping::map(-1, 4096, Mapping::Access::kRead, "segment 7");
  ASSERT_FALSE(unopened);
  EXPECT_THAT(unopened.error().message, HasSubstr("mmap segment 7: "));
}

TEST(Memfd, IsSharedBetweenMappingsAndOutlivesItsDescriptor) {
  UniqueFd fd = *create_memfd("nmc-test", 8192);
  Mapping writer = *Mapping::map(fd.get(), 8192, Mapping::Access::kReadWrite, "writer");
  const Mapping reader = *Mapping::map(fd.get(), 8192, Mapping::Access::kRead, "reader");
  fd = UniqueFd();
  writer.bytes()[5000] = std::byte{42};
  EXPECT_EQ(reader.bytes()[5000], std::byte{42});
}

TEST(Memfd, HasItsPagesAndClosesOnExec) {
  const UniqueFd fd = *create_memfd("nmc-test", 1u << 20);
  struct stat info {};
  ASSERT_EQ(::fstat(fd.get(), &info), 0);
  EXPECT_EQ(info.st_size, 1 << 20);
  EXPECT_GE(info.st_blocks * 512, 1 << 20);
  EXPECT_EQ(::fcntl(fd.get(), F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
}

TEST(Memfd, BeyondTheMachineIsRefusedBeforeAPageIsTaken) {
  for (const std::size_t size : {std::size_t{1} << 45, std::size_t{1} << 62, ~std::size_t{0}}) {
    const auto fd = create_memfd("pool", size);
    ASSERT_FALSE(fd);
    EXPECT_EQ(fd.error().code, ErrorCode::kResourceExhausted);
    EXPECT_THAT(fd.error().message, HasSubstr("memory for pool: " + std::to_string(size) + " bytes wanted, "));
  }
}

TEST(Memfd, OfNoBytesIsFine) { EXPECT_TRUE(create_memfd("empty", 0)); }

}  // namespace
}  // namespace nmc
