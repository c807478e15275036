// The strings of a chat template: UTF-8 that knows, run by run, who wrote it. What a request says stays known as the
// request's through every operation, so that in the rendered prompt it can't become a control token.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace nmc::model::jinja {

enum class Origin : std::uint8_t {
  kTemplate,  // its text, and what is made without the request's: numbers, quotes of tojson, the time
  kRequest,
};

// A value type. Always valid UTF-8; positions are bytes at the border of characters.
class Text {
 public:
  struct Run {
    std::string_view bytes;  // never empty; valid as long as the text isn't changed
    Origin origin = Origin::kTemplate;
  };

  Text() = default;
  explicit Text(std::string_view bytes, Origin origin = Origin::kTemplate) { append(bytes, origin); }

  std::string_view bytes() const { return bytes_; }
  std::size_t size() const { return bytes_.size(); }
  bool empty() const { return bytes_.empty(); }
  // Memory that it takes, for budgets: many short runs cost more than their bytes.
  std::size_t cost() const { return bytes_.size() + ends_.size() * kRunCost; }
  static constexpr std::size_t kRunCost = 16;

  void append(std::string_view bytes, Origin origin);
  void append(const Text& other) { append_slice(other, 0, other.size()); }
  // `other` is another object.
  void append_slice(const Text& other, std::size_t begin, std::size_t end);
  Text slice(std::size_t begin, std::size_t end) const;

  // In order; neighbours differ in origin.
  std::vector<Run> runs() const;
  Origin origin_at(std::size_t at) const { return ends_[run_at(at)].origin; }
  // kRequest if any of it is.
  Origin overall_origin() const;

 private:
  struct End {
    std::size_t at = 0;  // first byte behind the run
    Origin origin = Origin::kTemplate;
  };
  std::size_t run_at(std::size_t at) const;

  std::string bytes_;
  std::vector<End> ends_;  // ascending, the last one is bytes_.size(); neighbours differ in origin
};

}  // namespace nmc::model::jinja
