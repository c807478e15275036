// The `loop` variable of a chat template: a walk over items that may look one ahead.
#pragma once

#include <functional>
#include <optional>
#include <string_view>

#include "base/result.h"
#include "model/jinja_value.h"

namespace nmc::model::jinja {

// Items are tested when they are needed and not before, because a test may read what the loop's body changes.
class Loop {
 public:
  using Passes = std::function<Result<bool>(const Value& item)>;  // empty: all do

  Loop(Items items, Passes passes) : items_(std::move(items)), passes_(std::move(passes)) {}

  // The next item that passes; nullopt after the last one.
  Result<std::optional<Value>> next();

  // index, first, last, ... `self` is this loop as a value. Undefined when there is no such member.
  Result<Value> attribute(std::string_view name, const Value& self);
  // loop.cycle(...) and loop.changed(...).
  Result<Value> call(std::string_view method, const Arguments& arguments, Budget& budget);

  // Lets go of all values. Whoever still holds the loop gets errors from it.
  void end();

 private:
  Result<void> look_ahead();
  Result<std::int64_t> length();

  Items items_;
  Passes passes_;
  std::size_t at_ = 0;  // in items_: what wasn't looked at
  std::int64_t index_ = -1;
  std::optional<Value> after_;
  Value before_, current_;
  std::optional<std::int64_t> length_;
  std::optional<Items> last_changed_;
  bool ended_ = false;
};

}  // namespace nmc::model::jinja
