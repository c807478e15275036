#include "model/jinja_operators.h"

#include <algorithm>
#include <optional>

#include "model/jinja_methods.h"
#include "model/jinja_strings.h"
#include "model/unicode.h"

namespace nmc::model::jinja {
namespace {

Result<bool> contains_item(const Items& items, const Value& value, Budget& budget) {
  for (const Value& item : items) {
    NMC_ASSIGN_OR_RETURN(const bool equal, is_equal(item, value, budget));
    if (equal) return true;
  }
  return false;
}

Result<bool> contains(const Value& container, const Value& value, Budget& budget) {
  if (const Text* text = container.text()) {
    const Text* part = value.text();
    if (part == nullptr)
      return invalid_argument("`in` a string: expected a string before it, got {}", type_name(value));
    NMC_RETURN_IF_ERROR(budget.take_bytes(text->size()));
    return find_bytes(text->bytes(), part->bytes(), 0) != std::string_view::npos;
  }
  if (const Dict* dict = container.dict()) {
    NMC_ASSIGN_OR_RETURN(const Value* found, dict->find(value, budget));
    return found != nullptr;
  }
  if (const Sequence* sequence = container.sequence()) return contains_item(sequence->items, value, budget);
  if (container.loop() != nullptr || container.name_space() != nullptr || container.callable() != nullptr ||
      container.is_none() || container.is_number()) {
    return invalid_argument("`in` {}: expected a string, a list or a mapping", type_name(container));
  }
  // A view of keys looks them up, so it refuses what can't be one.
  const Iterable* view = container.iterable();
  if (view != nullptr && view->name == "dict_keys") NMC_RETURN_IF_ERROR(Dict().find(value, budget));
  NMC_ASSIGN_OR_RETURN(const Items items, take_items(container, budget));
  return contains_item(items, value, budget);
}

// A member as Python's getattr() finds it; nullopt: there is none of that name.
Result<std::optional<Value>> find_member(const Value& object, std::string_view name) {
  if (name.size() > 4 && name.starts_with("__") && name.ends_with("__")) {
    return invalid_argument("`{}` of {} is outside of a template's data", name, type_name(object));
  }
  if (const Namespace* names = object.name_space()) {
    const Value* found = names->find(name);
    return found == nullptr ? std::optional<Value>() : std::optional(*found);
  }
  switch (method_support(object, name)) {
    case MethodSupport::kNone: return std::optional<Value>();
    case MethodSupport::kCallable: {
      NMC_ASSIGN_OR_RETURN(Value method, make_method(object, name));
      return std::optional(std::move(method));
    }
    case MethodSupport::kChanges: {
      return invalid_argument("`{}` would change {}, which a template may not", name, type_name(object));
    }
    case MethodSupport::kMissing: return unsupported("`{}` of {} isn't supported", name, type_name(object));
  }
  return std::optional<Value>();
}

Value no_member(const Value& object, std::string_view name) {
  return Value::undefined(fmt::format("{} has no member `{}`", type_name(object), name));
}

// nullopt: out of range, or not something that is indexed by numbers.
Result<std::optional<Value>> item_at(const Value& object, std::int64_t index, Budget& budget) {
  if (object.text() == nullptr && object.sequence() == nullptr && object.range() == nullptr) {
    return std::optional<Value>();
  }
  NMC_ASSIGN_OR_RETURN(const std::int64_t length, length_of(object, budget));
  if (index < 0) index += length;
  if (index < 0 || index >= length) return std::optional<Value>();
  if (const Sequence* sequence = object.sequence())
    return std::optional(sequence->items[static_cast<std::size_t>(index)]);
  if (const Range* range = object.range()) return std::optional<Value>(range->at(index));
  const Text& text = *object.text();
  const std::size_t begin = byte_of_character(text.bytes(), static_cast<std::size_t>(index));
  return std::optional<Value>(text.slice(begin, begin + utf8_char_at(text.bytes(), begin).bytes));
}

// ---- Slices
// ----------------------------------------------------------------------------------------------------------

Result<std::optional<std::int64_t>> slice_bound(const Value& value) {
  if (value.is_none()) return std::optional<std::int64_t>();
  std::int64_t scratch = 0;
  const std::int64_t* whole = value.whole(scratch);
  if (whole == nullptr) return invalid_argument("a slice: expected integers, got {}", type_name(value));
  return std::optional(*whole);
}

struct Bounds {
  std::int64_t start = 0;
  std::int64_t stop = 0;
  std::int64_t step = 1;
  std::int64_t count = 0;
};

// The positions that a slice of a sequence of `length` names, as Python clips them.
Result<Bounds> bounds_of(const Slice& slice, std::int64_t length) {
  NMC_ASSIGN_OR_RETURN(const auto given_start, slice_bound(slice.start));
  NMC_ASSIGN_OR_RETURN(const auto given_stop, slice_bound(slice.stop));
  NMC_ASSIGN_OR_RETURN(const auto given_step, slice_bound(slice.step));
  const std::int64_t step = given_step.value_or(1);
  if (step == 0) return invalid_argument("a slice: the step is 0");
  const std::int64_t lowest = step > 0 ? 0 : -1;
  const std::int64_t highest = step > 0 ? length : length - 1;
  const auto clip = [&](std::int64_t position) {
    if (position < 0) position += length;
#if defined(NMC_PLANT_TEMPLATE)  // a deliberate mistake, to see that fuzzing finds it
    return position;
#endif
    return std::clamp(position, lowest, highest);
  };
  const std::int64_t start = given_start ? clip(*given_start) : (step > 0 ? lowest : highest);
  const std::int64_t stop = given_stop ? clip(*given_stop) : (step > 0 ? highest : lowest);
  return Bounds{start, stop, step, Range{start, stop, step}.size()};
}

Value slice_text(const Text& text, const Bounds& bounds) {
  std::vector<std::size_t> borders;  // of the characters, in bytes
  for (std::size_t at = 0; at < text.size(); at += utf8_char_at(text.bytes(), at).bytes) borders.push_back(at);
  borders.push_back(text.size());
  const auto border = [&](std::int64_t character) { return borders[static_cast<std::size_t>(character)]; };
  if (bounds.step == 1) return text.slice(border(bounds.start), border(bounds.start + bounds.count));
  Text picked;
  for (std::int64_t i = 0; i < bounds.count; ++i) {
    const std::int64_t at = bounds.start + i * bounds.step;
    picked.append_slice(text, border(at), border(at + 1));
  }
  return picked;
}

Result<Value> slice_sequence(const Sequence& sequence, const Bounds& bounds, Budget& budget) {
  NMC_RETURN_IF_ERROR(budget.take_steps(static_cast<std::uint64_t>(bounds.count)));
  Items items;
  for (std::int64_t i = 0; i < bounds.count; ++i) {
    items.push_back(sequence.items[static_cast<std::size_t>(bounds.start + i * bounds.step)]);
  }
  return sequence.is_tuple ? make_tuple(std::move(items)) : make_list(std::move(items));
}

Result<Value> slice_range(const Range& range, const Bounds& bounds) {
  std::int64_t step = 0;
  if (__builtin_mul_overflow(range.step, bounds.step, &step)) {
    return invalid_argument("a slice of a range: its step has more than 64 bits");
  }
  return make_range(range.at(bounds.start), range.at(bounds.stop), step);
}

}  // namespace

Result<bool> compare(Comparison op, const Value& left, const Value& right, Budget& budget) {
  switch (op) {
    case Comparison::kEqual: return is_equal(left, right, budget);
    case Comparison::kIn: return contains(right, left, budget);
    case Comparison::kNotEqual:
    case Comparison::kNotIn: {
      const Comparison positive = op == Comparison::kNotEqual ? Comparison::kEqual : Comparison::kIn;
      NMC_ASSIGN_OR_RETURN(const bool result, compare(positive, left, right, budget));
      return !result;
    }
    default: break;
  }
  NMC_ASSIGN_OR_RETURN(const std::partial_ordering order, order_of(left, right, budget));
  switch (op) {
    case Comparison::kLess: return order < 0;
    case Comparison::kLessEqual: return order <= 0;
    case Comparison::kGreater: return order > 0;
    default: return order >= 0;
  }
}

Result<Value> get_item(const Value& object, const Value& key, Budget& budget) {
  if (object.is_undefined()) return undefined_error(object);
  if (const Dict* dict = object.dict()) {
    const auto found = dict->find(key, budget);
    if (found && *found != nullptr) return **found;
  }
  std::int64_t scratch = 0;
  if (const std::int64_t* index = key.whole(scratch)) {
    NMC_ASSIGN_OR_RETURN(std::optional<Value> item, item_at(object, *index, budget));
    if (item) return std::move(*item);
    return Value::undefined(fmt::format("{} has no item {}", type_name(object), *index));
  }
  if (const Text* name = key.text()) {
    NMC_ASSIGN_OR_RETURN(std::optional<Value> member, find_member(object, name->bytes()));
    if (member) return std::move(*member);
    return no_member(object, name->bytes());
  }
  return Value::undefined(fmt::format("{} has no item of {}", type_name(object), type_name(key)));
}

Result<Value> get_attribute(const Value& object, std::string_view name, Budget& budget) {
  NMC_RETURN_IF_ERROR(budget.take_steps(1));
  if (object.is_undefined()) return undefined_error(object);
  NMC_ASSIGN_OR_RETURN(std::optional<Value> member, find_member(object, name));
  if (member) return std::move(*member);
  const Dict* dict = object.dict();
  const Value* found = dict == nullptr ? nullptr : dict->find(name);
  return found == nullptr ? no_member(object, name) : *found;
}

Result<Value> get_slice(const Value& object, const Slice& slice, Budget& budget) {
  if (object.is_undefined()) return undefined_error(object);
  const bool sliced = object.text() != nullptr || object.sequence() != nullptr || object.range() != nullptr;
  if (!sliced) return invalid_argument("{} can't be sliced", type_name(object));
  NMC_ASSIGN_OR_RETURN(const std::int64_t length, length_of(object, budget));
  NMC_ASSIGN_OR_RETURN(const Bounds bounds, bounds_of(slice, length));
  if (const Text* text = object.text()) return slice_text(*text, bounds);
  if (const Range* range = object.range()) return slice_range(*range, bounds);
  return slice_sequence(*object.sequence(), bounds, budget);
}

}  // namespace nmc::model::jinja
