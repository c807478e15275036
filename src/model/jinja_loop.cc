#include "model/jinja_loop.h"

#include <utility>

namespace nmc::model::jinja {

Result<void> Loop::look_ahead() {
  while (!after_ && at_ < items_.size()) {
    const Value& item = items_[at_++];
    bool passes = true;
    if (passes_) {
      NMC_ASSIGN_OR_RETURN(passes, passes_(item));
    }
    if (passes) after_ = item;
  }
  return {};
}

Result<std::optional<Value>> Loop::next() {
  NMC_RETURN_IF_ERROR(look_ahead());
  if (!after_) return std::optional<Value>();
  before_ = std::exchange(current_, std::move(*after_));
  after_.reset();
  ++index_;
  return std::optional(current_);
}

// With a test, that means to find all that pass.
Result<std::int64_t> Loop::length() {
  if (length_) return *length_;
  if (!passes_) return length_.emplace(static_cast<std::int64_t>(items_.size()));
  Items rest;
  while (true) {
    NMC_RETURN_IF_ERROR(look_ahead());
    if (!after_) break;
    rest.push_back(std::move(*after_));
    after_.reset();
  }
  items_ = std::move(rest);
  at_ = 0;
  passes_ = nullptr;
  return length_.emplace(index_ + 1 + static_cast<std::int64_t>(items_.size()));
}

Result<Value> Loop::attribute(std::string_view name, const Value& self) {
  if (ended_) return invalid_argument("`loop` outside of its loop");
  if (name == "index") return Value(index_ + 1);
  if (name == "index0") return Value(index_);
  if (name == "first") return Value(index_ == 0);
  if (name == "depth" || name == "depth0")
    return Value(std::int64_t{name == "depth"});  // of recursion, which isn't there
  if (name == "previtem") return index_ == 0 ? Value::undefined("there is no previous item") : before_;
  if (name == "cycle" || name == "changed") return make_method(self, name);
  if (name == "last" || name == "nextitem") {
    NMC_RETURN_IF_ERROR(look_ahead());
    if (name == "last") return Value(!after_.has_value());
    return after_ ? *after_ : Value::undefined("there is no next item");
  }
  if (name == "length" || name == "revindex" || name == "revindex0") {
    NMC_ASSIGN_OR_RETURN(const std::int64_t count, length());
    return Value(name == "length" ? count : count - index_ - (name == "revindex0" ? 1 : 0));
  }
  return Value::undefined(fmt::format("`loop` has no member `{}`", name));
}

Result<Value> Loop::call(std::string_view method, const Arguments& arguments, Budget& budget) {
  if (ended_) return invalid_argument("`loop` outside of its loop");
  if (!arguments.named.empty()) return invalid_argument("`loop.{}` takes no named arguments", method);
  if (method == "cycle") {
    if (arguments.positional.empty()) return invalid_argument("`loop.cycle`: no items to choose from");
    return arguments.positional[static_cast<std::size_t>(index_) % arguments.positional.size()];
  }
  bool same = last_changed_ && last_changed_->size() == arguments.positional.size();
  for (std::size_t i = 0; same && i < arguments.positional.size(); ++i) {
    NMC_ASSIGN_OR_RETURN(same, is_equal((*last_changed_)[i], arguments.positional[i], budget));
  }
  if (!same) last_changed_ = arguments.positional;
  return Value(!same);
}

void Loop::end() {
  ended_ = true;
  items_.clear();
  passes_ = nullptr;
  after_.reset();
  before_ = current_ = Value();
  last_changed_.reset();
}

}  // namespace nmc::model::jinja
