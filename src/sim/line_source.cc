#include "sim/line_source.h"

#include <fcntl.h>
#include <unistd.h>
#include <zstd.h>

#include <algorithm>
#include <cstring>

namespace nmc::sim {
namespace {

constexpr std::size_t kChunkBytes = std::size_t{256} << 10;
constexpr std::string_view kZstdMagic = "\x28\xb5\x2f\xfd";

}  // namespace

struct LineSource::Decompressor {
  struct Free {
    void operator()(ZSTD_DCtx* owned) const { ZSTD_freeDCtx(owned); }
  };
  std::unique_ptr<ZSTD_DCtx, Free> context{ZSTD_createDCtx()};
  bool inside_frame = false;
};

LineSource::LineSource(Read read, std::string name) : read_(std::move(read)), name_(std::move(name)) {}
LineSource::LineSource(LineSource&&) noexcept = default;
LineSource& LineSource::operator=(LineSource&&) noexcept = default;
LineSource::~LineSource() = default;

Result<LineSource> LineSource::open(const Path& path) {
  UniqueFd fd(retry_on_eintr([&] { return ::open(path.c_str(), O_RDONLY | O_CLOEXEC); }));
  if (!fd) return Failure(os_error("open", path.string()));
  auto shared = std::make_shared<UniqueFd>(std::move(fd));  // std::function copies what it holds
  return LineSource(
      [shared, name = path.string()](char* to, std::size_t bytes) -> Result<std::size_t> {
        const ssize_t got = retry_on_eintr([&] { return ::read(shared->get(), to, bytes); });
        if (got < 0) return Failure(os_error("read", name));
        return static_cast<std::size_t>(got);
      },
      path.string());
}

LineSource LineSource::over(std::string_view bytes, std::string name) {
  return LineSource(
      [rest = bytes](char* to, std::size_t room) mutable -> Result<std::size_t> {
        const std::size_t taken = std::min(room, rest.size());
        if (taken > 0) std::memcpy(to, rest.data(), taken);
        rest.remove_prefix(taken);
        return taken;
      },
      std::move(name));
}

// Plain bytes: what was read ahead to see the magic first.
Result<std::size_t> LineSource::read_plain(char* to, std::size_t bytes) {
  if (raw_begin_ == raw_end_) return read_(to, bytes);
  const std::size_t taken = std::min(bytes, raw_end_ - raw_begin_);
  std::memcpy(to, raw_.data() + raw_begin_, taken);
  raw_begin_ += taken;
  return taken;
}

// More bytes behind end_, or ended_.
Result<void> LineSource::fill() {
  if (!started_) {
    started_ = true;
    raw_.resize(kChunkBytes);
    while (raw_end_ < kZstdMagic.size()) {
      NMC_ASSIGN_OR_RETURN(const std::size_t got, read_(raw_.data() + raw_end_, raw_.size() - raw_end_));
      if (got == 0) break;
      raw_end_ += got;
    }
    if (std::string_view(raw_).substr(0, raw_end_).starts_with(kZstdMagic)) {
      decompressor_ = std::make_unique<Decompressor>();
      if (decompressor_->context == nullptr) return resource_exhausted("{}: no memory to decompress it", name_);
    }
  }
  if (begin_ > 0) {
    std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
    end_ -= begin_;
    begin_ = 0;
  }
  if (buffer_.size() < end_ + kChunkBytes + kPadding) buffer_.resize(2 * end_ + kChunkBytes + kPadding);
  const std::size_t room = buffer_.size() - kPadding - end_;
  if (decompressor_ == nullptr) {
    NMC_ASSIGN_OR_RETURN(const std::size_t got, read_plain(buffer_.data() + end_, room));
    end_ += got;
    ended_ = got == 0;
    return {};
  }
  ZSTD_outBuffer out{buffer_.data() + end_, room, 0};
  while (out.pos == 0) {
    if (raw_begin_ == raw_end_) {
      raw_begin_ = 0;
      NMC_ASSIGN_OR_RETURN(raw_end_, read_(raw_.data(), raw_.size()));
      if (raw_end_ == 0) {
        if (decompressor_->inside_frame) return corrupt("{}: its compressed bytes end too early", name_);
        ended_ = true;
        return {};
      }
    }
    ZSTD_inBuffer in{raw_.data() + raw_begin_, raw_end_ - raw_begin_, 0};
    const std::size_t left = ZSTD_decompressStream(decompressor_->context.get(), &out, &in);
    if (ZSTD_isError(left)) return corrupt("{}: zstd: {}", name_, ZSTD_getErrorName(left));
    raw_begin_ += in.pos;
    decompressor_->inside_frame = left != 0;
  }
  end_ += out.pos;
  return {};
}

Result<bool> LineSource::next(std::string_view* line) {
  std::size_t looked = 0;
  for (;;) {
    const char* from = buffer_.data() + begin_;
    const void* found = end_ - begin_ > looked ? std::memchr(from + looked, '\n', end_ - begin_ - looked) : nullptr;
    looked = end_ - begin_;
    if (found == nullptr && !ended_ && looked <= kLineBytesMax) {
      NMC_RETURN_IF_ERROR(fill());
      continue;
    }
    std::size_t length = looked;
    if (found != nullptr) length = static_cast<std::size_t>(static_cast<const char*>(found) - from);
    if (length > kLineBytesMax) {
      return invalid_argument("{}:{}: a line of more than {} bytes", name_, number_ + 1, kLineBytesMax);
    }
    if (found == nullptr && length == 0) return false;
    begin_ += length + (found != nullptr ? 1 : 0);
    ++number_;
    *line = std::string_view(from, length);
    if (line->ends_with('\r')) line->remove_suffix(1);
    return true;
  }
}

}  // namespace nmc::sim
