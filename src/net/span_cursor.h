// Internal to net: bytes that lie in several places, as the iovecs of one call after another.
#pragma once

#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>

namespace nmc::net {

// As many as are worth one call; the kernel takes 1024.
using Iovecs = std::array<iovec, 64>;

// Walks through `head` and then `tail`, which stay where they are. `Byte` is std::byte or const std::byte.
template <typename Byte>
class SpanCursor {
 public:
  using Span = std::span<Byte>;

  explicit SpanCursor(std::span<const Span> head, std::span<const Span> tail = {}) : head_(head), tail_(tail) {
    for (const Span& span : head) left_ += span.size();
    for (const Span& span : tail) left_ += span.size();
  }

  std::uint64_t left() const { return left_; }
  // No more than so many bytes from here: what is behind them is left alone.
  void limit(std::uint64_t bytes) { left_ = std::min(left_, bytes); }

  // The next bytes, at most `bytes_max`, into the front of `pieces`; returns that front.
  std::span<const iovec> next(std::span<iovec> pieces, std::uint64_t bytes_max = UINT64_MAX) const {
    std::uint64_t room = std::min(bytes_max, left_);
    std::size_t count = 0;
    std::size_t within = offset_;
    for (std::size_t i = index_; room > 0 && count < pieces.size(); ++i, within = 0) {
      const Span rest = at(i).subspan(within);
      if (rest.empty()) continue;
      const auto size = static_cast<std::size_t>(std::min<std::uint64_t>(rest.size(), room));
      pieces[count++] = {const_cast<std::remove_const_t<Byte>*>(rest.data()), size};
      room -= size;
    }
    return pieces.first(count);
  }

  // Copies `from` there, as much as there is room for; returns how much.
  std::size_t take(std::span<const std::byte> from)
    requires(!std::is_const_v<Byte>)
  {
    std::size_t taken = 0;
    while (left_ > 0 && taken < from.size()) {
      iovec piece;
      next({&piece, 1}, from.size() - taken);
      std::memcpy(piece.iov_base, from.data() + taken, piece.iov_len);
      taken += piece.iov_len;
      advance(piece.iov_len);
    }
    return taken;
  }

  // So many of the next bytes are done; at most left().
  void advance(std::size_t bytes) {
    left_ -= bytes;
    while (bytes > 0) {
      const std::size_t step = std::min(bytes, at(index_).size() - offset_);
      bytes -= step;
      offset_ += step;
      if (offset_ == at(index_).size()) {
        ++index_;
        offset_ = 0;
      }
    }
  }

 private:
  const Span& at(std::size_t i) const { return i < head_.size() ? head_[i] : tail_[i - head_.size()]; }

  std::span<const Span> head_, tail_;
  std::size_t index_ = 0, offset_ = 0;  // of the next byte
  std::uint64_t left_ = 0;
};

}  // namespace nmc::net
