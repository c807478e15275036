// What the tests of the disk log share: the log as verbs on short strings, and folders as a crash would leave them.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/failpoint.h"
#include "base/files.h"
#include "base/hash.h"
#include "base/rng.h"
#include "store/disk_log.h"

namespace nmc::store {

namespace fs = std::filesystem;

// Content that its seed alone determines.
inline std::string content(std::uint64_t seed, std::size_t bytes) {
  std::string text(bytes, '\0');
  Rng rng(seed);
  for (char& c : text) c = static_cast<char>(rng.next());
  return text;
}

inline std::uint64_t folder_bytes(const Path& folder) {
  std::uint64_t bytes = 0;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (entry.is_regular_file()) bytes += entry.file_size();
  }
  return bytes;
}

inline std::vector<Path> log_files(const Path& folder) {
  std::vector<Path> files;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.path().extension() == ".nmc") files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

inline std::string bytes_of(const Path& path) { return *read_file(path); }

inline void overwrite(const Path& path, const std::string& bytes) {
  const UniqueFd fd(::open(path.c_str(), O_WRONLY | O_TRUNC | O_CREAT | O_CLOEXEC, 0644));
  ASSERT_EQ(::write(fd.get(), bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
}

// Runs `body` in a forked child, which leaves with its result.
inline int exit_code_of(const std::function<int()>& body) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(body());
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

class DiskLogTest : public ::testing::Test {
 protected:
  void SetUp() override {
    options_.folder = folder_.path() / "log";
    options_.fsync = FsyncPolicy::kNever;  // process death needs none, and tests of power loss there are none
  }
  void TearDown() override { disarm_failpoints(); }

  void open() {
    log_.reset();
    auto opened = DiskLog::open(options_);
    ASSERT_TRUE(opened) << opened.error().to_string();
    log_ = std::move(*opened);
  }
  void close() { log_.reset(); }
  // The folder as the death of the process at this instant would leave it, opened instead.
  void crash() {
    const Path copy = folder_.path() / fmt::format("copy{}", copies_++);
    fs::create_directory(copy);
    for (const auto& entry : fs::directory_iterator(options_.folder))
      fs::copy(entry.path(), copy / entry.path().filename(), fs::copy_options::recursive);
    log_.reset();
    fs::remove_all(options_.folder);
    fs::rename(copy, options_.folder);
  }
  Error open_error() {
    auto opened = DiskLog::open(options_);
    return opened ? Error{ErrorCode::kInternal, "opened"} : opened.error();
  }

  Result<std::uint64_t> put(std::string_view key, std::string_view payload) {
    const DiskItem item{key, as_bytes(payload)};
    return log_->append({&item, 1});
  }
  // "-" is a miss.
  std::string get(std::string_view key) {
    const auto size = log_->size_of(key);
    EXPECT_EQ(size.has_value(), log_->contains(key));
    if (!size) return "-";
    std::string payload(*size, '\0');
    return log_->read(key, std::as_writable_bytes(std::span(payload.data(), payload.size()))) ? payload : "-";
  }

  TemporaryFolder folder_ = *TemporaryFolder::create("disk_log");
  DiskLogOptions options_;
  std::unique_ptr<DiskLog> log_;
  int copies_ = 0;
};

}  // namespace nmc::store
