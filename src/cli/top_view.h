// The figures of `nano-mooncake top` as lines on a screen.
#pragma once

#include <cstddef>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "base/json.h"
#include "cli/screen.h"
#include "cli/top_reading.h"

namespace nmc::cli {

// The last kKept values of a figure, oldest first; nothing where it could not be told.
class History {
 public:
  static constexpr std::size_t kKept = 60;
  void add(std::optional<double> value);
  std::optional<double> last() const { return values_.empty() ? std::nullopt : values_.back(); }
  std::string sparkline() const;

 private:
  std::deque<std::optional<double>> values_;
};

// Not thread-safe.
class TopView {
 public:
  virtual ~TopView() = default;
  // A reading of the same kind as the first, later than those before.
  virtual void add(TopReading reading) = 0;
  // What `columns` have room for; about `rows` lines, of which those at the end matter least.
  virtual std::vector<Line> lines(std::size_t columns, std::size_t rows) const = 0;
  // Of the last reading, for programs.
  virtual Json figures() const = 0;
};

// For readings of `first`'s kind, which it has already.
std::unique_ptr<TopView> make_top_view(TopReading first);

}  // namespace nmc::cli
