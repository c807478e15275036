#include "base/files.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <signal.h>
#include <sys/fsuid.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <thread>
#include <vector>

namespace nmc {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::UnorderedElementsAre;

constexpr uid_t kNobody = 65534;

// File accesses of this thread are those of a user without rights; root's pass every permission.
class WithoutRights {
 public:
  WithoutRights() { ::setfsuid(kNobody); }
  ~WithoutRights() { ::setfsuid(::geteuid()); }
};

// Writes beyond `bytes` of a file fail with EFBIG, as they fail with ENOSPC on a full disk.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) {
    previous_handler_ = ::signal(SIGXFSZ, SIG_IGN);
    ::getrlimit(RLIMIT_FSIZE, &previous_);
    const rlimit limited{bytes, previous_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &limited);
  }
  ~FileSizeLimit() {
    ::setrlimit(RLIMIT_FSIZE, &previous_);
    ::signal(SIGXFSZ, previous_handler_);
  }

 private:
  rlimit previous_{};
  sighandler_t previous_handler_ = SIG_DFL;
};

class Files : public testing::Test {
 protected:
  // Open to all, so that WithoutRights gets as far as the file in question.
  void SetUp() override { std::filesystem::permissions(folder_.path(), std::filesystem::perms(0755)); }

  Path at(std::string_view name) const { return folder_.path() / name; }
  std::string content(std::string_view name) const { return read_file(at(name)).value_or("unreadable"); }
  void put(std::string_view name, std::string_view text) { ASSERT_TRUE(write_file_atomic(at(name), text)); }

  std::vector<std::string> names() const {
    std::vector<std::string> found;
    for (const auto& entry : std::filesystem::directory_iterator(folder_.path())) {
      found.push_back(entry.path().filename().string());
    }
    return found;
  }

  template <typename T>
  static void expect_error(const Result<T>& result, ErrorCode code, const std::string& part) {
    ASSERT_FALSE(result);
    EXPECT_STREQ(error_code_name(result.error().code), error_code_name(code)) << result.error().message;
    EXPECT_THAT(result.error().message, HasSubstr(part));
  }

  TemporaryFolder folder_ = *TemporaryFolder::create("nmc-files-test");
};

TEST_F(Files, WrittenIsRead) {
  const std::string bytes("a\0b\xff\n", 5);
  put("f", bytes);
  EXPECT_EQ(content("f"), bytes);
  EXPECT_EQ(*nmc::file_size(at("f")), bytes.size());
  put("empty", "");
  EXPECT_EQ(content("empty"), "");
  EXPECT_EQ(*nmc::file_size(at("empty")), 0u);
}

TEST_F(Files, ReadsWhatIsLongerThanOneStep) {
  std::string text;
  for (int i = 0; i < 300'000; ++i) text.push_back(static_cast<char>(i * 31));
  put("f", text);
  EXPECT_EQ(content("f"), text);
}

TEST_F(Files, ReadsFilesThatDontTellTheirSize) { EXPECT_THAT(*read_file("/proc/self/status"), HasSubstr("Name:")); }

TEST_F(Files, ReadRefusesMoreThanItsLimit) {
  put("f", "12345");
  EXPECT_EQ(*read_file(at("f"), 5), "12345");
  expect_error(read_file(at("f"), 4), ErrorCode::kInvalidArgument, "f: 5 bytes, expected at most 4");
  expect_error(read_file("/proc/self/status", 10), ErrorCode::kInvalidArgument, "more than the 10 bytes");
}

TEST_F(Files, ErrorsNamePathAndReason) {
  const std::string missing = at("missing").string();
  expect_error(read_file(missing), ErrorCode::kNotFound, "open " + missing + ": No such file");
  expect_error(map_file(missing), ErrorCode::kNotFound, missing);
  expect_error(nmc::file_size(missing), ErrorCode::kNotFound, missing);
  expect_error(read_file(at("missing/below")), ErrorCode::kNotFound, "missing/below");
}

TEST_F(Files, OnlyRegularFilesAreRead) {
  expect_error(read_file(folder_.path()), ErrorCode::kInvalidArgument, "expected a regular file");
  expect_error(map_file(folder_.path()), ErrorCode::kInvalidArgument, "expected a regular file");
  expect_error(read_file("/dev/zero"), ErrorCode::kInvalidArgument, "expected a regular file");
}

TEST_F(Files, APipeWithoutAWriterIsRefusedAndNotWaitedFor) {
  ASSERT_EQ(::mkfifo(at("pipe").c_str(), 0600), 0);
  expect_error(read_file(at("pipe")), ErrorCode::kInvalidArgument, "expected a regular file");
  expect_error(write_file_atomic(at("pipe"), "x"), ErrorCode::kInvalidArgument, "expected a regular file");
}

TEST_F(Files, UnreadableIsPermissionDenied) {
  put("f", "x");
  ASSERT_EQ(::chmod(at("f").c_str(), 0), 0);
  const WithoutRights without;
  expect_error(read_file(at("f")), ErrorCode::kPermissionDenied, "f: Permission denied");
}

TEST_F(Files, WriteMakesParentFoldersAndReplaces) {
  put("a/b/c", "first, and longer");
  put("a/b/c", "second");
  EXPECT_EQ(content("a/b/c"), "second");
  EXPECT_THAT(names(), ElementsAre("a"));
}

TEST_F(Files, WriteOverAFolderLeavesItAndNoTemporary) {
  ASSERT_TRUE(std::filesystem::create_directory(at("d")));
  expect_error(write_file_atomic(at("d"), "x"), ErrorCode::kInvalidArgument, "expected a regular file");
  EXPECT_THAT(names(), ElementsAre("d"));
  EXPECT_TRUE(std::filesystem::is_directory(at("d")));
}

TEST_F(Files, WriteBelowAFileFails) {
  put("f", "x");
  EXPECT_FALSE(write_file_atomic(at("f/below"), "y"));
  EXPECT_EQ(content("f"), "x");
  EXPECT_THAT(names(), ElementsAre("f"));
}

TEST_F(Files, WriteIntoAReadOnlyFolderFailsAndLeavesAllAsItWas) {
  put("f", "before");
  {
    const WithoutRights without;
    expect_error(write_file_atomic(at("f"), "after"), ErrorCode::kPermissionDenied, "Permission denied");
    expect_error(write_file_atomic(at("new/f"), "after"), ErrorCode::kPermissionDenied, "create folder");
  }
  EXPECT_EQ(content("f"), "before");
  EXPECT_THAT(names(), ElementsAre("f"));
}

TEST_F(Files, WriteThatFailsHalfwayLeavesTheOldContentAndNoTemporary) {
  put("f", "before");
  {
    const FileSizeLimit limit(64 * 1024);
    expect_error(write_file_atomic(at("f"), std::string(1 << 20, 'x')), ErrorCode::kResourceExhausted, "f: ");
  }
  EXPECT_EQ(content("f"), "before");
  EXPECT_THAT(names(), ElementsAre("f"));
}

TEST_F(Files, TooLongANameIsAnError) {
  expect_error(write_file_atomic(at(std::string(300, 'n')), "x"), ErrorCode::kInvalidArgument, "name too long");
  EXPECT_THAT(names(), IsEmpty());
}

TEST_F(Files, WriteGoesThroughALinkToItsFile) {
  put("target", "before");
  std::filesystem::create_symlink(at("target"), at("link"));
  put("link", "after");
  EXPECT_TRUE(std::filesystem::is_symlink(at("link")));
  EXPECT_EQ(content("target"), "after");
  EXPECT_THAT(names(), UnorderedElementsAre("target", "link"));
}

TEST_F(Files, WriteThroughALinkToNowhereFails) {
  std::filesystem::create_symlink(at("gone"), at("link"));
  expect_error(write_file_atomic(at("link"), "x"), ErrorCode::kNotFound, "follow link");
  EXPECT_THAT(names(), ElementsAre("link"));
}

TEST_F(Files, LeftoversOfAnEarlierProcessWithOurNumberAreSteppedOver) {
  for (int i = 0; i < 200; ++i) {
    const Path stale = at(fmt::format(".nmc-{}-{}.tmp", ::getpid(), i));
    const UniqueFd fd(::open(stale.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
    ASSERT_TRUE(fd);
  }
  put("f", "x");
  EXPECT_EQ(content("f"), "x");
}

TEST_F(Files, WritersAtOnceDontMixAndReadersSeeOneWhole) {
  constexpr int kWriters = 3;
  constexpr int kRounds = 15;
  put("f", std::string(1000, 'z'));
  std::atomic<int> running = kWriters;
  std::vector<std::thread> threads;
  for (int w = 0; w < kWriters; ++w) {
    threads.emplace_back([&, w] {
      const std::string text(static_cast<std::size_t>(5000 * (w + 1)), static_cast<char>('a' + w));
      for (int i = 0; i < kRounds; ++i) EXPECT_TRUE(write_file_atomic(at("f"), text));
      running.fetch_sub(1, std::memory_order_release);
    });
  }
  while (running.load(std::memory_order_acquire) > 0) {
    const std::string seen = content("f");
    ASSERT_FALSE(seen.empty());
    ASSERT_EQ(seen.find_first_not_of(seen.front()), std::string::npos);
    ASSERT_EQ(seen.size(), seen.front() == 'z' ? 1000u : 5000u * static_cast<unsigned>(seen.front() - 'a' + 1));
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(names(), ElementsAre("f"));
}

TEST_F(Files, MappedIsTheContent) {
  put("f", "mapped");
  const Mapping mapping = *map_file(at("f"));
  ASSERT_EQ(mapping.size(), 6u);
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(mapping.data()), mapping.size()), "mapped");
  put("empty", "");
  EXPECT_EQ(map_file(at("empty"))->size(), 0u);
}

TEST(TemporaryFolderTest, GoesWithAllItHolds) {
  Path path;
  {
    TemporaryFolder folder = *TemporaryFolder::create("nmc-test");
    path = folder.path();
    ASSERT_TRUE(write_file_atomic(path / "a/b", "x"));
    const TemporaryFolder moved = std::move(folder);
    EXPECT_EQ(moved.path(), path);
    EXPECT_TRUE(std::filesystem::exists(path));
  }
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST(TemporaryFolderTest, EachIsNew) {
  const TemporaryFolder a = *TemporaryFolder::create(), b = *TemporaryFolder::create();
  EXPECT_NE(a.path(), b.path());
  EXPECT_EQ(std::filesystem::status(a.path()).permissions(), std::filesystem::perms(0700));
}

}  // namespace
}  // namespace nmc
