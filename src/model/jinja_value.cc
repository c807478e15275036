#include "model/jinja_value.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "model/unicode.h"

namespace nmc::model::jinja {
namespace {

Failure too_deep() { return invalid_argument("values nested more than {} deep", kValueDepthMax); }

int depth_of(const Value& value) {
  if (const Sequence* sequence = value.sequence()) return sequence->depth;
  if (const Dict* dict = value.dict()) return dict->depth();
  if (const Iterable* iterable = value.iterable()) return iterable->depth;
  if (const Callable* callable = value.callable()) return callable->depth;
  return 0;
}

// Of a container of these, or 0 if that would be too deep.
int depth_around(const Items& items) {
  int deepest = 0;
  for (const Value& item : items) deepest = std::max(deepest, depth_of(item));
  return deepest < kValueDepthMax ? deepest + 1 : 0;
}

Result<std::size_t> hash_of(const Value& value, Budget& budget) {
  NMC_RETURN_IF_ERROR(budget.take_steps(1));
  std::int64_t scratch = 0;
  if (const std::int64_t* whole = value.whole(scratch)) return std::hash<std::int64_t>()(*whole);
  if (const double* real = value.real()) {
    const bool fits = *real == std::floor(*real) && std::abs(*real) < 9.2e18;  // equals an integer: so does its hash
    return fits ? std::hash<std::int64_t>()(static_cast<std::int64_t>(*real)) : std::hash<double>()(*real);
  }
  if (const Text* text = value.text()) {
    NMC_RETURN_IF_ERROR(budget.take_bytes(text->size()));
    return std::hash<std::string_view>()(text->bytes());
  }
  if (value.is_none() || value.is_undefined()) return std::size_t{value.is_none()};
  if (const Range* range = value.range()) {
    const std::int64_t size = range->size();  // of an equal one the rest is equal as well where it matters
    return std::hash<std::int64_t>()(size == 0 ? 0 : size * 31 + range->start);
  }
  const Sequence* tuple = value.sequence();
  if (tuple == nullptr || !tuple->is_tuple) {
    return invalid_argument("{} can't be looked up: expected a string, a number, a tuple or none", type_name(value));
  }
  std::size_t hash = tuple->items.size();
  for (const Value& item : tuple->items) {
    NMC_ASSIGN_OR_RETURN(const std::size_t part, hash_of(item, budget));
    hash = hash * 1000003 ^ part;
  }
  return hash;
}

std::partial_ordering order_of_numbers(const Value& left, const Value& right) {
  std::int64_t a = 0, b = 0;
  const std::int64_t* left_whole = left.whole(a);
  const std::int64_t* right_whole = right.whole(b);
  if (left_whole != nullptr && right_whole != nullptr) return *left_whole <=> *right_whole;
  const auto exact = [](const Value& value, const std::int64_t* whole) {
    return whole != nullptr ? static_cast<long double>(*whole) : static_cast<long double>(*value.real());
  };
  return exact(left, left_whole) <=> exact(right, right_whole);
}

Result<bool> are_items_equal(const Items& left, const Items& right, Budget& budget) {
  if (left.size() != right.size()) return false;
  for (std::size_t i = 0; i < left.size(); ++i) {
    NMC_ASSIGN_OR_RETURN(const bool equal, is_equal(left[i], right[i], budget));
    if (!equal) return false;
  }
  return true;
}

Result<bool> are_dicts_equal(const Dict& left, const Dict& right, Budget& budget) {
  if (left.size() != right.size()) return false;
  for (const auto& [key, value] : left.entries()) {
    NMC_ASSIGN_OR_RETURN(const Value* other, right.find(key, budget));
    if (other == nullptr) return false;
    NMC_ASSIGN_OR_RETURN(const bool equal, is_equal(value, *other, budget));
    if (!equal) return false;
  }
  return true;
}

Result<std::partial_ordering> order_of_items(const Items& left, const Items& right, Budget& budget) {
  const std::size_t common = std::min(left.size(), right.size());
  for (std::size_t i = 0; i < common; ++i) {
    NMC_ASSIGN_OR_RETURN(const bool equal, is_equal(left[i], right[i], budget));
    if (!equal) return order_of(left[i], right[i], budget);
  }
  return left.size() <=> right.size();
}

Result<Items> characters_of(const Text& text, Budget& budget) {
  NMC_RETURN_IF_ERROR(budget.take_bytes(text.size()));
  NMC_RETURN_IF_ERROR(budget.take_steps(text.size() * kStepsOfText));
  Items items;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = at + utf8_char_at(text.bytes(), at).bytes;
    items.push_back(text.slice(at, end));
    at = end;
  }
  return items;
}

}  // namespace

// ---- Value
// -----------------------------------------------------------------------------------------------------------

std::shared_ptr<Loop> Value::loop() const {
  const auto* held = std::get_if<std::shared_ptr<Loop>>(&data_);
  return held == nullptr ? nullptr : *held;
}

const std::int64_t* Value::whole(std::int64_t& scratch) const {
  if (const bool* flag = boolean()) {
    scratch = *flag ? 1 : 0;
    return &scratch;
  }
  return integer();
}

double Value::as_double() const {
  std::int64_t scratch = 0;
  const std::int64_t* number = whole(scratch);
  return number != nullptr ? static_cast<double>(*number) : *real();
}

bool Value::is_same(const Value& other) const {
  if (data_.index() != other.data_.index()) return false;
  if (is_undefined()) return true;
  if (const Text* own = text()) return own->bytes() == other.text()->bytes();
  return std::visit(
      [&](const auto& held) {
        using Held = std::decay_t<decltype(held)>;
        if constexpr (std::is_same_v<Held, Undefined>) {
          return true;
        } else {
          return held == std::get<Held>(other.data_);
        }
      },
      data_);
}

// ---- Containers
// ------------------------------------------------------------------------------------------------------

Result<std::size_t> Dict::index_of(const Value& key, std::size_t hash, Budget& budget) const {
  const auto [begin, end] = by_hash_.equal_range(hash);
  for (auto it = begin; it != end; ++it) {
    NMC_ASSIGN_OR_RETURN(const bool equal, is_equal(entries_[it->second].first, key, budget));
    if (equal) return it->second;
  }
  return entries_.size();
}

Result<void> Dict::set(Value key, Value value, Budget& budget) {
  const int depth = std::max(depth_of(key), depth_of(value)) + 1;
  if (depth > kValueDepthMax) return too_deep();
  NMC_ASSIGN_OR_RETURN(const std::size_t hash, hash_of(key, budget));
  NMC_ASSIGN_OR_RETURN(const std::size_t index, index_of(key, hash, budget));
  depth_ = std::max(depth_, depth);
  if (index < entries_.size()) {
    entries_[index].second = std::move(value);
  } else {
    by_hash_.emplace(hash, entries_.size());
    entries_.emplace_back(std::move(key), std::move(value));
  }
  return {};
}

Result<const Value*> Dict::find(const Value& key, Budget& budget) const {
  NMC_ASSIGN_OR_RETURN(const std::size_t hash, hash_of(key, budget));
  NMC_ASSIGN_OR_RETURN(const std::size_t index, index_of(key, hash, budget));
  return index < entries_.size() ? &entries_[index].second : nullptr;
}

const Value* Dict::find(std::string_view key) const {
  const auto [begin, end] = by_hash_.equal_range(std::hash<std::string_view>()(key));
  for (auto it = begin; it != end; ++it) {
    const auto& [own, value] = entries_[it->second];
    if (own.text() != nullptr && own.text()->bytes() == key) return &value;
  }
  return nullptr;
}

std::int64_t Range::size() const {
  if (step > 0 ? start >= stop : start <= stop) return 0;
  const auto distance = static_cast<std::uint64_t>(stop) - static_cast<std::uint64_t>(start);
  const auto stride = static_cast<std::uint64_t>(step);
  const std::uint64_t count = step > 0 ? (distance - 1) / stride + 1 : (0 - distance - 1) / (0 - stride) + 1;
  return static_cast<std::int64_t>(std::min<std::uint64_t>(count, std::numeric_limits<std::int64_t>::max()));
}

const Value* Namespace::find(std::string_view name) const {
  const auto it = std::ranges::find(members, name, &std::pair<std::string, Value>::first);
  return it == members.end() ? nullptr : &it->second;
}

void Namespace::set(std::string_view name, Value value) {
  const auto it = std::ranges::find(members, name, &std::pair<std::string, Value>::first);
  if (it != members.end()) {
    it->second = std::move(value);
  } else {
    members.emplace_back(name, std::move(value));
  }
}

Result<Value> make_list(Items items) {
  const int depth = depth_around(items);
  if (depth == 0) return too_deep();
  return Value(std::make_shared<const Sequence>(Sequence{std::move(items), false, depth}));
}

Result<Value> make_tuple(Items items) {
  const int depth = depth_around(items);
  if (depth == 0) return too_deep();
  return Value(std::make_shared<const Sequence>(Sequence{std::move(items), true, depth}));
}

Result<Value> make_iterator(Items items) {
  const int depth = depth_around(items);
  if (depth == 0) return too_deep();
  return Value(std::make_shared<Iterable>(Iterable{std::move(items), "generator", true, 0, depth}));
}

Result<Value> make_view(std::string name, Items items) {
  const int depth = depth_around(items);
  if (depth == 0) return too_deep();
  return Value(std::make_shared<Iterable>(Iterable{std::move(items), std::move(name), false, 0, depth}));
}

Result<Value> make_method(Value self, std::string_view name) {
  const int depth = depth_of(self) + 1;
  if (depth > kValueDepthMax) return too_deep();
  auto method = std::make_shared<Callable>();
  method->kind = Callable::Kind::kMethod;
  method->name = name;
  method->self = std::move(self);
  method->depth = depth;
  return Value(std::shared_ptr<const Callable>(std::move(method)));
}

Value make_dict(Dict dict) { return std::make_shared<const Dict>(std::move(dict)); }

Value make_range(std::int64_t start, std::int64_t stop, std::int64_t step) {
  return std::make_shared<const Range>(Range{start, stop, step});
}

Result<Value> value_of_json(const Json& json, Origin origin, Budget& budget) {
  NMC_RETURN_IF_ERROR(budget.take_steps(1));
  switch (json.type()) {
    case Json::value_t::null: return Value(None());
    case Json::value_t::boolean: return Value(json.get<bool>());
    case Json::value_t::number_integer: return Value(json.get<std::int64_t>());
    case Json::value_t::number_float: return Value(json.get<double>());
    case Json::value_t::number_unsigned:
      if (json.get<std::uint64_t>() > std::numeric_limits<std::int64_t>::max()) {
        return invalid_argument("the integer {} has more than 64 bits", json.get<std::uint64_t>());
      }
      return Value(json.get<std::int64_t>());
    case Json::value_t::string: return Value::of(json.get_ref<const std::string&>(), origin);
    case Json::value_t::array: {
      Items items;
      items.reserve(json.size());
      for (const Json& item : json) {
        NMC_ASSIGN_OR_RETURN(items.emplace_back(), value_of_json(item, origin, budget));
      }
      return make_list(std::move(items));
    }
    case Json::value_t::object: {
      Dict dict;
      for (const auto& [name, member] : json.items()) {
        NMC_ASSIGN_OR_RETURN(Value value, value_of_json(member, origin, budget));
        NMC_RETURN_IF_ERROR(dict.set(Value::of(name, origin), std::move(value), budget));
      }
      return make_dict(std::move(dict));
    }
    default: return invalid_argument("a value that JSON doesn't have");
  }
}

// ---- What every value can be asked
// -----------------------------------------------------------------------------------

const char* type_name(const Value& value) {
  if (value.is_undefined()) return "an undefined value";
  if (value.is_none()) return "none";
  if (value.boolean() != nullptr) return "a boolean";
  if (value.integer() != nullptr) return "an integer";
  if (value.real() != nullptr) return "a float";
  if (value.text() != nullptr) return "a string";
  if (const Sequence* sequence = value.sequence()) return sequence->is_tuple ? "a tuple" : "a list";
  if (value.dict() != nullptr) return "a mapping";
  if (value.range() != nullptr) return "a range";
  if (const Iterable* iterable = value.iterable()) return iterable->once ? "an iterator" : "a view of a mapping";
  if (value.name_space() != nullptr) return "a namespace";
  return value.callable() != nullptr ? "a function" : "a loop";
}

Failure undefined_error(const Value& value) {
  const auto& why = value.undefined()->why;
  return invalid_argument("{}", why == nullptr ? "a value is undefined" : *why);
}

bool is_true(const Value& value) {
  if (value.is_undefined() || value.is_none()) return false;
  if (value.is_number()) return value.as_double() != 0;
  if (const Text* text = value.text()) return !text->empty();
  if (const Sequence* sequence = value.sequence()) return !sequence->items.empty();
  if (const Dict* dict = value.dict()) return dict->size() != 0;
  if (const Range* range = value.range()) return range->size() != 0;
  if (const Iterable* iterable = value.iterable()) return iterable->once || !iterable->items.empty();
  return true;
}

Result<bool> is_equal(const Value& left, const Value& right, Budget& budget) {
  NMC_RETURN_IF_ERROR(budget.take_steps(1));
  if (left.is_number() && right.is_number()) return order_of_numbers(left, right) == 0;
  if (left.text() != nullptr && right.text() != nullptr) {
    NMC_RETURN_IF_ERROR(budget.take_bytes(std::min(left.text()->size(), right.text()->size())));
    return left.text()->bytes() == right.text()->bytes();
  }
  if (left.sequence() != nullptr && right.sequence() != nullptr) {
    if (left.sequence()->is_tuple != right.sequence()->is_tuple) return false;
    return are_items_equal(left.sequence()->items, right.sequence()->items, budget);
  }
  if (left.dict() != nullptr && right.dict() != nullptr) return are_dicts_equal(*left.dict(), *right.dict(), budget);
  if (left.range() != nullptr && right.range() != nullptr) {
    const Range &a = *left.range(), &b = *right.range();
    const std::int64_t size = a.size();
    return size == b.size() && (size == 0 || (a.start == b.start && (size == 1 || a.step == b.step)));
  }
  return left.is_same(right);
}

Result<std::partial_ordering> order_of(const Value& left, const Value& right, Budget& budget) {
  NMC_RETURN_IF_ERROR(budget.take_steps(1));
  if (left.is_undefined()) return undefined_error(left);
  if (right.is_undefined()) return undefined_error(right);
  if (left.is_number() && right.is_number()) return order_of_numbers(left, right);
  if (left.text() != nullptr && right.text() != nullptr) {
    NMC_RETURN_IF_ERROR(budget.take_bytes(std::min(left.text()->size(), right.text()->size())));
    return std::partial_ordering(left.text()->bytes() <=> right.text()->bytes());
  }
  if (left.sequence() != nullptr && right.sequence() != nullptr &&
      left.sequence()->is_tuple == right.sequence()->is_tuple) {
    return order_of_items(left.sequence()->items, right.sequence()->items, budget);
  }
  return invalid_argument("{} and {} have no order", type_name(left), type_name(right));
}

Result<Items> take_items(const Value& value, Budget& budget) {
  if (value.is_undefined()) return Items();
  if (const Text* text = value.text()) return characters_of(*text, budget);
  if (const Sequence* sequence = value.sequence()) {
    NMC_RETURN_IF_ERROR(budget.take_steps(sequence->items.size()));
    return sequence->items;
  }
  Items items;
  if (const Dict* dict = value.dict()) {
    NMC_RETURN_IF_ERROR(budget.take_steps(dict->size()));
    for (const auto& [key, member] : dict->entries()) items.push_back(key);
    return items;
  }
  if (const Range* range = value.range()) {
    NMC_RETURN_IF_ERROR(budget.take_steps(static_cast<std::uint64_t>(range->size())));
    for (std::int64_t i = 0; i < range->size(); ++i) items.emplace_back(range->at(i));
    return items;
  }
  if (Iterable* iterable = value.iterable()) {
    NMC_RETURN_IF_ERROR(budget.take_steps(iterable->items.size()));
    if (!iterable->once) return iterable->items;
    items.assign(iterable->items.begin() + static_cast<std::ptrdiff_t>(iterable->taken), iterable->items.end());
    iterable->taken = iterable->items.size();
    return items;
  }
  return invalid_argument("{} can't be iterated", type_name(value));
}

Result<std::int64_t> length_of(const Value& value, Budget& budget) {
  if (value.is_undefined()) return 0;
  if (const Text* text = value.text()) {
    NMC_RETURN_IF_ERROR(budget.take_bytes(text->size()));
    return std::ranges::count_if(text->bytes(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; });
  }
  if (const Sequence* sequence = value.sequence()) return static_cast<std::int64_t>(sequence->items.size());
  if (const Dict* dict = value.dict()) return static_cast<std::int64_t>(dict->size());
  if (const Range* range = value.range()) return range->size();
  const Iterable* iterable = value.iterable();
  if (iterable != nullptr && !iterable->once) return static_cast<std::int64_t>(iterable->items.size());
  return invalid_argument("{} has no length", type_name(value));
}

}  // namespace nmc::model::jinja
