#include <algorithm>
#include <numeric>
#include <optional>

#include "model/jinja_arguments.h"
#include "model/jinja_filters.h"
#include "model/jinja_operators.h"
#include "model/jinja_print.h"
#include "model/jinja_strings.h"

namespace nmc::model::jinja {
namespace {

// ---- Attributes by path, as map(attribute="a.b.0") has them
// -----------------------------------------------------------

using Path = std::vector<Value>;

Path path_of_text(const Text& text) {
  Path path;
  for (const Text& part : split(text, ".", -1, From::kLeft)) {
    const std::string_view digits = part.bytes();
    const bool is_index = !digits.empty() && digits.size() < 10 &&
                          std::ranges::all_of(digits, [](char c) { return c >= '0' && c <= '9'; });
    path.push_back(is_index ? Value(static_cast<std::int64_t>(std::stoll(std::string(digits)))) : Value(part));
  }
  return path;
}

// Empty for none: the item itself.
Path path_of(const Value* attribute) {
  if (attribute == nullptr || attribute->is_none()) return {};
  if (const Text* text = attribute->text()) return path_of_text(*text);
  return {*attribute};
}

// `absent` stands for what is undefined along the way.
Result<Value> follow(Value item, const Path& path, Budget& budget, const Value* absent = nullptr) {
  for (const Value& key : path) {
    NMC_ASSIGN_OR_RETURN(item, get_item(item, key, budget));
    if (absent != nullptr && item.is_undefined()) item = *absent;
  }
  return item;
}

Value ignoring_case(const Value& value) {
  const Text* text = value.text();
  return text == nullptr ? value : Value(in_case(*text, LetterCase::kLower));
}

Result<Value> key_of(const Value& item, const Path& path, bool case_sensitive, Budget& budget) {
  NMC_ASSIGN_OR_RETURN(const Value key, follow(item, path, budget));
  if (key.text() != nullptr) NMC_RETURN_IF_ERROR(budget.take_bytes(key.text()->size()));
  return case_sensitive ? key : ignoring_case(key);
}

// ---- Order
// -----------------------------------------------------------------------------------------------------------

// Indices of `keys` in ascending or descending order; equal ones keep theirs.
Result<std::vector<std::size_t>> sorted_order(const Items& keys, bool descending, Budget& budget) {
  std::vector<std::size_t> order(keys.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::optional<Error> error;
  std::ranges::stable_sort(order, [&](std::size_t a, std::size_t b) {
    if (error) return false;
    Result<std::partial_ordering> result =
        descending ? order_of(keys[b], keys[a], budget) : order_of(keys[a], keys[b], budget);
    if (!result) error = std::move(result).error();
    return !error && *result < 0;
  });
  if (error) return Failure(std::move(*error));
  return order;
}

Items in_order(const Items& items, const std::vector<std::size_t>& order) {
  Items sorted;
  sorted.reserve(items.size());
  for (const std::size_t index : order) sorted.push_back(items[index]);
  return sorted;
}

Result<Value> sort(const Value& input, const Arguments& arguments, Budget& budget) {
  NMC_ASSIGN_OR_RETURN(const BoundArguments bound,
                       BoundArguments::bind("sort", {"reverse", "case_sensitive", "attribute"}, 0, arguments));
  std::vector<Path> paths;
  if (const Value* attribute = bound.find(2); attribute != nullptr && attribute->text() != nullptr) {
    for (const Text& one : split(*attribute->text(), ",", -1, From::kLeft)) paths.push_back(path_of_text(one));
  } else {
    paths.push_back(path_of(attribute));
  }
  NMC_ASSIGN_OR_RETURN(const Items items, take_items(input, budget));
  Items keys;
  for (const Value& item : items) {
    Items parts;
    for (const Path& path : paths) {
      NMC_ASSIGN_OR_RETURN(parts.emplace_back(), key_of(item, path, bound.flag_or(1, false), budget));
    }
    NMC_ASSIGN_OR_RETURN(keys.emplace_back(), make_list(std::move(parts)));
  }
  NMC_ASSIGN_OR_RETURN(const auto order, sorted_order(keys, bound.flag_or(0, false), budget));
  return make_list(in_order(items, order));
}

Result<Value> dictsort(const Value& input, const Arguments& arguments, Budget& budget) {
  NMC_ASSIGN_OR_RETURN(const BoundArguments bound,
                       BoundArguments::bind("dictsort", {"case_sensitive", "by", "reverse"}, 0, arguments));
  std::string_view by = "key";
  if (bound.find(1) != nullptr) {
    NMC_ASSIGN_OR_RETURN(const Text* given, bound.text(1));
    by = given->bytes();
  }
  if (by != "key" && by != "value") return invalid_argument("`dictsort`: expected key or value as `by`, got {}", by);
  if (input.is_undefined()) return undefined_error(input);
  if (input.dict() == nullptr) return invalid_argument("`dictsort`: expected a mapping, got {}", type_name(input));
  Items pairs, keys;
  for (const auto& [key, value] : input.dict()->entries()) {
    NMC_ASSIGN_OR_RETURN(pairs.emplace_back(), make_tuple({key, value}));
    NMC_ASSIGN_OR_RETURN(keys.emplace_back(), key_of(by == "key" ? key : value, {}, bound.flag_or(0, false), budget));
  }
  NMC_ASSIGN_OR_RETURN(const auto order, sorted_order(keys, bound.flag_or(2, false), budget));
  return make_list(in_order(pairs, order));
}

template <bool kLargest>
Result<Value> extreme(const Value& input, const Arguments& arguments, Budget& budget) {
  NMC_ASSIGN_OR_RETURN(const BoundArguments bound,
                       BoundArguments::bind("min or max", {"case_sensitive", "attribute"}, 0, arguments));
  NMC_ASSIGN_OR_RETURN(const Items items, take_items(input, budget));
  if (items.empty()) return Value::undefined("the smallest or largest of nothing");
  const Path path = path_of(bound.find(1));
  std::size_t best = 0;
  Value best_key;
  for (std::size_t i = 0; i < items.size(); ++i) {
    NMC_ASSIGN_OR_RETURN(Value key, key_of(items[i], path, bound.flag_or(0, false), budget));
    if (i > 0) {
      NMC_ASSIGN_OR_RETURN(const auto order, order_of(key, best_key, budget));
      if (!(kLargest ? order > 0 : order < 0)) continue;
    }
    best = i;
    best_key = std::move(key);
  }
  return items[best];
}

Result<Value> unique(const Value& input, const Arguments& arguments, Budget& budget) {
  NMC_ASSIGN_OR_RETURN(const BoundArguments bound,
                       BoundArguments::bind("unique", {"case_sensitive", "attribute"}, 0, arguments));
  NMC_ASSIGN_OR_RETURN(const Items items, take_items(input, budget));
  const Path path = path_of(bound.find(1));
  Dict seen;
  Items kept;
  for (const Value& item : items) {
    NMC_ASSIGN_OR_RETURN(Value key, key_of(item, path, bound.flag_or(0, false), budget));
    const std::size_t before = seen.size();
    NMC_RETURN_IF_ERROR(seen.set(std::move(key), None(), budget));
    if (seen.size() > before) kept.push_back(item);
  }
  return make_iterator(std::move(kept));
}

// ---- Choice and change
// -----------------------------------------------------------------------------------------------

struct Choice {
  bool by_attribute = false;
  bool rejects = false;
};

template <Choice kChoice>
Result<Value> choose(const Value& input, const Arguments& arguments, Budget& budget) {
  if (!is_true(input)) return make_iterator({});
  Arguments rest = arguments;
  Path path;
  if (kChoice.by_attribute) {
    if (rest.positional.empty())
      return invalid_argument("`selectattr` or `rejectattr`: expected the name of an attribute");
    path = path_of(&rest.positional.front());
    rest.positional.erase(rest.positional.begin());
  }
  Test test = nullptr;
  if (!rest.positional.empty()) {
    const Text* name = rest.positional.front().text();
    test = name == nullptr ? nullptr : find_test(name->bytes());
    if (test == nullptr) {
      return unsupported("unknown test `{}`", name == nullptr ? type_name(rest.positional.front()) : name->bytes());
    }
    rest.positional.erase(rest.positional.begin());
  }
  NMC_ASSIGN_OR_RETURN(const Items items, take_items(input, budget));
  Items kept;
  for (const Value& item : items) {
    NMC_ASSIGN_OR_RETURN(const Value value, follow(item, path, budget));
    bool passes = is_true(value);
    if (test != nullptr) {
      NMC_ASSIGN_OR_RETURN(passes, test(value, rest, budget));
    }
    if (passes != kChoice.rejects) kept.push_back(item);
  }
  return make_iterator(std::move(kept));
}

Result<Value> map_attribute(const Value& input, const Arguments& arguments, Budget& budget) {
  NMC_ASSIGN_OR_RETURN(const BoundArguments bound, BoundArguments::bind("map", {"attribute", "default"}, 0, arguments));
  const Path path = path_of(bound.find(0));
  NMC_ASSIGN_OR_RETURN(const Items items, take_items(input, budget));
  Items mapped;
  for (const Value& item : items) {
    NMC_ASSIGN_OR_RETURN(mapped.emplace_back(), follow(item, path, budget, bound.find_some(1)));
  }
  return make_iterator(std::move(mapped));
}

Result<Value> map(const Value& input, const Arguments& arguments, Budget& budget) {
  if (!is_true(input)) return make_iterator({});
  const bool named = std::ranges::any_of(arguments.named, [](const auto& one) { return one.first == "attribute"; });
  if (arguments.positional.empty() && named) return map_attribute(input, arguments, budget);
  const Text* name = arguments.positional.empty() ? nullptr : arguments.positional.front().text();
  if (name == nullptr) return invalid_argument("`map`: expected the name of a filter or `attribute`");
  const Filter filter = find_filter(name->bytes());
  if (filter == nullptr) return unsupported("unknown filter `{}`", name->bytes());
  Arguments rest = arguments;
  rest.positional.erase(rest.positional.begin());
  NMC_ASSIGN_OR_RETURN(const Items items, take_items(input, budget));
  Items mapped;
  for (const Value& item : items) {
    NMC_RETURN_IF_ERROR(budget.take_steps(1));
    NMC_ASSIGN_OR_RETURN(mapped.emplace_back(), filter(item, rest, budget));
  }
  return make_iterator(std::move(mapped));
}

// ---- Others
// ----------------------------------------------------------------------------------------------------------

Result<Value> first(const Value& input, const Arguments& arguments, Budget& budget) {
  NMC_RETURN_IF_ERROR(BoundArguments::bind("first", {}, 0, arguments));
  if (Iterable* iterable = input.iterable(); iterable != nullptr && iterable->once) {
    if (iterable->taken == iterable->items.size()) return Value::undefined("the first of nothing");
    return iterable->items[iterable->taken++];
  }
  if (input.text() != nullptr || input.sequence() != nullptr) {
    NMC_ASSIGN_OR_RETURN(const Value item, get_item(input, std::int64_t{0}, budget));
    return item.is_undefined() ? Value::undefined("the first of nothing") : item;
  }
  NMC_ASSIGN_OR_RETURN(const Items items, take_items(input, budget));
  return items.empty() ? Value::undefined("the first of nothing") : items.front();
}

bool is_iterator(const Value& value) { return value.iterable() != nullptr && value.iterable()->once; }

Result<Value> last(const Value& input, const Arguments& arguments, Budget& budget) {
  NMC_RETURN_IF_ERROR(BoundArguments::bind("last", {}, 0, arguments));
  if (is_iterator(input)) return invalid_argument("`last`: {} can't be read backwards", type_name(input));
  NMC_ASSIGN_OR_RETURN(const Items items, take_items(input, budget));
  return items.empty() ? Value::undefined("the last of nothing") : items.back();
}

Result<Value> reverse_items(const Value& input, const Arguments& arguments, Budget& budget) {
  NMC_RETURN_IF_ERROR(BoundArguments::bind("reverse", {}, 0, arguments));
  if (const Text* text = input.text()) {
    NMC_RETURN_IF_ERROR(budget.take_bytes(text->size()));
    return Value(reverse(*text));
  }
  NMC_ASSIGN_OR_RETURN(Items items, take_items(input, budget));
  std::ranges::reverse(items);
  return is_iterator(input) ? make_list(std::move(items)) : make_iterator(std::move(items));
}

Result<Value> list(const Value& input, const Arguments& arguments, Budget& budget) {
  NMC_RETURN_IF_ERROR(BoundArguments::bind("list", {}, 0, arguments));
  NMC_ASSIGN_OR_RETURN(Items items, take_items(input, budget));
  return make_list(std::move(items));
}

Result<Value> items_of(const Value& input, const Arguments& arguments, Budget& budget) {
  NMC_RETURN_IF_ERROR(BoundArguments::bind("items", {}, 0, arguments));
  if (input.is_undefined()) return make_iterator({});
  if (input.dict() == nullptr) return invalid_argument("`items`: expected a mapping, got {}", type_name(input));
  NMC_RETURN_IF_ERROR(budget.take_steps(input.dict()->size()));
  Items pairs;
  for (const auto& [key, value] : input.dict()->entries()) {
    NMC_ASSIGN_OR_RETURN(pairs.emplace_back(), make_tuple({key, value}));
  }
  return make_iterator(std::move(pairs));
}

Result<Value> join(const Value& input, const Arguments& arguments, Budget& budget) {
  NMC_ASSIGN_OR_RETURN(const BoundArguments bound, BoundArguments::bind("join", {"d", "attribute"}, 0, arguments));
  Text separator;
  if (bound.find(0) != nullptr) {
    NMC_ASSIGN_OR_RETURN(separator, to_text(bound.at(0), budget));
  }
  const Path path = path_of(bound.find(1));
  NMC_ASSIGN_OR_RETURN(const Items items, take_items(input, budget));
  Text joined;
  for (std::size_t i = 0; i < items.size(); ++i) {
    NMC_ASSIGN_OR_RETURN(const Value item, follow(items[i], path, budget));
    NMC_ASSIGN_OR_RETURN(const Text text, to_text(item, budget));
    NMC_RETURN_IF_ERROR(budget.take_bytes(text.cost() + separator.cost()));
    if (i > 0) joined.append(separator);
    joined.append(text);
    NMC_RETURN_IF_ERROR(Budget::check_text(joined.cost()));
  }
  return Value(std::move(joined));
}

Result<Value> sum(const Value& input, const Arguments& arguments, Budget& budget) {
  NMC_ASSIGN_OR_RETURN(const BoundArguments bound, BoundArguments::bind("sum", {"attribute", "start"}, 0, arguments));
  const Path path = path_of(bound.find(0));
  Value total = bound.find(1) == nullptr ? Value(std::int64_t{0}) : bound.at(1);
  if (total.text() != nullptr) return invalid_argument("`sum`: strings are joined by `join`");
  NMC_ASSIGN_OR_RETURN(const Items items, take_items(input, budget));
  for (const Value& item : items) {
    NMC_ASSIGN_OR_RETURN(const Value value, follow(item, path, budget));
    NMC_ASSIGN_OR_RETURN(total, calculate(Arithmetic::kAdd, total, value, budget));
  }
  return total;
}

constexpr FilterEntry kListFilters[] = {
    {"dictsort", dictsort},
    {"first", first},
    {"items", items_of},
    {"join", join},
    {"last", last},
    {"list", list},
    {"map", map},
    {"max", extreme<true>},
    {"min", extreme<false>},
    {"reject", choose<Choice{.by_attribute = false, .rejects = true}>},
    {"rejectattr", choose<Choice{.by_attribute = true, .rejects = true}>},
    {"reverse", reverse_items},
    {"select", choose<Choice{.by_attribute = false, .rejects = false}>},
    {"selectattr", choose<Choice{.by_attribute = true, .rejects = false}>},
    {"sort", sort},
    {"sum", sum},
    {"unique", unique},
};

}  // namespace

std::span<const FilterEntry> list_filters() { return kListFilters; }

}  // namespace nmc::model::jinja
