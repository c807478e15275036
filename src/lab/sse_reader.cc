#include "lab/sse_reader.h"

#include <algorithm>
#include <utility>

namespace nmc::lab {

Result<void> SseReader::add(std::string_view bytes) {
  while (!bytes.empty()) {
    if (std::exchange(after_return_, false) && bytes.front() == '\n') bytes.remove_prefix(1);
    const std::size_t end = std::min(bytes.find_first_of("\r\n"), bytes.size());
    if (line_.size() + end + (data_ ? data_->size() : 0) > kEventBytesMax)
      return resource_exhausted("an event of the stream is larger than {} bytes", kEventBytesMax);
    line_ += bytes.substr(0, end);
    if (end == bytes.size()) return {};
    after_return_ = bytes[end] == '\r';
    bytes.remove_prefix(end + 1);
    end_line();
  }
  return {};
}

void SseReader::end_line() {
  const std::string line = std::exchange(line_, {});
  if (line.empty()) {
    if (data_) events_.push_back(*std::exchange(data_, std::nullopt));
    return;
  }
  constexpr std::string_view kField = "data";
  if (!line.starts_with(kField)) return;
  std::string_view value = std::string_view(line).substr(kField.size());
  if (!value.empty() && value.front() != ':') return;
  if (!value.empty()) value.remove_prefix(1);
  if (value.starts_with(' ')) value.remove_prefix(1);
  if (data_) {
    *data_ += '\n';
    *data_ += value;
  } else {
    data_ = value;
  }
}

std::optional<std::string> SseReader::next() {
  if (events_.empty()) return std::nullopt;
  std::string event = std::move(events_.front());
  events_.pop_front();
  return event;
}

}  // namespace nmc::lab
