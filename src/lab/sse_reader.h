// Server-sent events out of bytes that are cut anywhere.
#pragma once

#include <cstddef>
#include <deque>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace nmc::lab {

// Not thread-safe.
class SseReader {
 public:
  static constexpr std::size_t kEventBytesMax = 16 << 20;

  // kResourceExhausted: an event is larger than that.
  Result<void> add(std::string_view bytes);
  // The data of the next whole event, its lines joined by \n. Events without data, as comments that keep a connection
  // alive, are left out.
  std::optional<std::string> next();
  // Something of an event has come whose end has not.
  bool has_part() const { return !line_.empty() || data_.has_value(); }

 private:
  void end_line();

  std::string line_;                 // unfinished
  bool after_return_ = false;        // a \n that follows belongs to it
  std::optional<std::string> data_;  // of the unfinished event
  std::deque<std::string> events_;
};

}  // namespace nmc::lab
