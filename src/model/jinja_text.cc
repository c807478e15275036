#include "model/jinja_text.h"

#include <algorithm>

namespace nmc::model::jinja {

void Text::append(std::string_view bytes, Origin origin) {
  if (bytes.empty()) return;
  bytes_ += bytes;
  if (!ends_.empty() && ends_.back().origin == origin) {
    ends_.back().at = bytes_.size();
  } else {
    ends_.push_back({bytes_.size(), origin});
  }
}

void Text::append_slice(const Text& other, std::size_t begin, std::size_t end) {
  if (begin >= end) return;
  for (std::size_t run = other.run_at(begin); begin < end; ++run) {
    const std::size_t run_end = std::min(end, other.ends_[run].at);
    append(other.bytes().substr(begin, run_end - begin), other.ends_[run].origin);
    begin = run_end;
  }
}

Text Text::slice(std::size_t begin, std::size_t end) const {
  Text part;
  part.append_slice(*this, begin, end);
  return part;
}

std::vector<Text::Run> Text::runs() const {
  std::vector<Run> runs;
  std::size_t begin = 0;
  for (const End& end : ends_) {
    runs.push_back({bytes().substr(begin, end.at - begin), end.origin});
    begin = end.at;
  }
  return runs;
}

Origin Text::overall_origin() const {
  const bool request = std::ranges::any_of(ends_, [](const End& end) { return end.origin == Origin::kRequest; });
  return request ? Origin::kRequest : Origin::kTemplate;
}

std::size_t Text::run_at(std::size_t at) const {
  return static_cast<std::size_t>(std::ranges::upper_bound(ends_, at, {}, &End::at) - ends_.begin());
}

}  // namespace nmc::model::jinja
