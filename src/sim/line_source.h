// Lines of a file, plain or compressed with zstd, which its first bytes tell; memory doesn't go with the file's size.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "base/files.h"
#include "base/result.h"

namespace nmc::sim {

// Not thread-safe.
class LineSource {
 public:
  // At least so many bytes beyond the end of a line can be read, whatever they hold: parsers with wide registers do.
  static constexpr std::size_t kPadding = 64;
  static constexpr std::size_t kLineBytesMax = std::size_t{16} << 20;

  // kNotFound, kPermissionDenied, kIo with the path.
  static Result<LineSource> open(const Path& path);
  // Over bytes in memory, which outlive this.
  static LineSource over(std::string_view bytes, std::string name);

  LineSource(LineSource&&) noexcept;
  LineSource& operator=(LineSource&&) noexcept;
  ~LineSource();

  // The next line without its end (\n or \r\n), valid until the next call; false at the end. kCorrupt where compressed
  // bytes are damaged or end too early; kInvalidArgument for a line above the limit.
  Result<bool> next(std::string_view* line);
  std::uint64_t number() const { return number_; }  // of the last line given, from 1
  const std::string& name() const { return name_; }

 private:
  struct Decompressor;
  // Puts the next raw bytes at `to`, at most `bytes`; 0 at the end.
  using Read = std::function<Result<std::size_t>(char* to, std::size_t bytes)>;
  LineSource(Read read, std::string name);
  Result<void> fill();
  Result<std::size_t> read_plain(char* to, std::size_t bytes);

  Read read_;
  std::string name_;
  std::unique_ptr<Decompressor> decompressor_;  // none for plain bytes
  bool started_ = false, ended_ = false;
  std::string buffer_;
  std::size_t begin_ = 0, end_ = 0;  // of what is in the buffer and not given yet
  std::string raw_;                  // as read
  std::size_t raw_begin_ = 0, raw_end_ = 0;
  std::uint64_t number_ = 0;
};

}  // namespace nmc::sim
