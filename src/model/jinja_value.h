// The values of a chat template: what Python calls None, bool, int (64 bits here), float, str, list, tuple, dict,
// range, and the few objects that Jinja adds. Values copy cheaply and never change, except a namespace, and an iterator
// that is used up.
#pragma once

#include <compare>
#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "model/jinja_budget.h"
#include "model/jinja_text.h"

namespace nmc::model::jinja {

class Value;
class Dict;
struct Macro;
class Scope;
class Loop;
using Items = std::vector<Value>;

struct None {
  bool operator==(const None&) const = default;
};

// A name or member that isn't there. Prints as nothing and counts as false; most else that is done with it is an error
// that says why it isn't there.
struct Undefined {
  std::shared_ptr<const std::string> why;
};

struct Sequence;
struct Range;
struct Iterable;
struct Namespace;
struct Callable;

class Value {
 public:
  Value() = default;  // undefined without a reason
  Value(Undefined undefined) : data_(std::move(undefined)) {}
  Value(None) : data_(None()) {}
  Value(bool value) : data_(value) {}
  Value(std::int64_t value) : data_(value) {}
  Value(double value) : data_(value) {}
  Value(Text text) : data_(std::make_shared<const Text>(std::move(text))) {}
  Value(std::shared_ptr<const Sequence> value) : data_(std::move(value)) {}
  Value(std::shared_ptr<const Dict> value) : data_(std::move(value)) {}
  Value(std::shared_ptr<const Range> value) : data_(std::move(value)) {}
  Value(std::shared_ptr<Iterable> value) : data_(std::move(value)) {}
  Value(std::shared_ptr<Namespace> value) : data_(std::move(value)) {}
  Value(std::shared_ptr<const Callable> value) : data_(std::move(value)) {}
  Value(std::shared_ptr<Loop> value) : data_(std::move(value)) {}
  Value(const char*) = delete;  // would be a bool

  static Value undefined(std::string why) { return Undefined{std::make_shared<const std::string>(std::move(why))}; }
  static Value of(std::string_view bytes, Origin origin = Origin::kTemplate) { return Text(bytes, origin); }

  bool is_undefined() const { return std::holds_alternative<Undefined>(data_); }
  bool is_none() const { return std::holds_alternative<None>(data_); }

  // nullptr when it is something else.
  const bool* boolean() const { return std::get_if<bool>(&data_); }
  const std::int64_t* integer() const { return std::get_if<std::int64_t>(&data_); }
  const double* real() const { return std::get_if<double>(&data_); }
  const Text* text() const { return pointer<const Text>(); }
  const Sequence* sequence() const { return pointer<const Sequence>(); }
  const Dict* dict() const { return pointer<const Dict>(); }
  const Range* range() const { return pointer<const Range>(); }
  Iterable* iterable() const { return pointer<Iterable>(); }
  Namespace* name_space() const { return pointer<Namespace>(); }
  const Callable* callable() const { return pointer<const Callable>(); }
  std::shared_ptr<Loop> loop() const;
  const Undefined* undefined() const { return std::get_if<Undefined>(&data_); }

  // Of bool and int, as Python counts them.
  const std::int64_t* whole(std::int64_t& scratch) const;
  bool is_number() const { return boolean() != nullptr || integer() != nullptr || real() != nullptr; }
  double as_double() const;  // of a number

  // The same object, as Python's `is`; for numbers and strings whether they are equal in type and value.
  bool is_same(const Value& other) const;

 private:
  template <typename T>
  T* pointer() const {
    const auto* held = std::get_if<std::shared_ptr<T>>(&data_);
    return held == nullptr ? nullptr : held->get();
  }

  std::variant<Undefined, None, bool, std::int64_t, double, std::shared_ptr<const Text>,
               std::shared_ptr<const Sequence>, std::shared_ptr<const Dict>, std::shared_ptr<const Range>,
               std::shared_ptr<Iterable>, std::shared_ptr<Namespace>, std::shared_ptr<const Callable>,
               std::shared_ptr<Loop>>
      data_;
};

// How many containers lie within each other below a value; kept within bounds so that whatever walks a value, and its
// destruction, may recurse.
inline constexpr int kValueDepthMax = 100;

struct Sequence {
  Items items;
  bool is_tuple = false;
  int depth = 1;
};

// Keys are hashable and keep the order in which they came.
class Dict {
 public:
  const std::vector<std::pair<Value, Value>>& entries() const { return entries_; }
  std::size_t size() const { return entries_.size(); }
  int depth() const { return depth_; }

  // Replaces the value of an equal key. Fails for a key that can't be one, or beyond kValueDepthMax.
  Result<void> set(Value key, Value value, Budget& budget);
  // nullptr: not there. Fails for a key that can't be one.
  Result<const Value*> find(const Value& key, Budget& budget) const;
  const Value* find(std::string_view key) const;

 private:
  Result<std::size_t> index_of(const Value& key, std::size_t hash, Budget& budget) const;  // size(): not there

  std::vector<std::pair<Value, Value>> entries_;
  std::unordered_multimap<std::size_t, std::size_t> by_hash_;  // to the index in entries_
  int depth_ = 1;
};

struct Range {
  std::int64_t start = 0;
  std::int64_t stop = 0;
  std::int64_t step = 1;  // not 0
  std::int64_t size() const;
  std::int64_t at(std::int64_t index) const { return start + index * step; }  // 0 <= index < size()
};

// A view of a dict, or what a filter yields one by one. The latter can be walked only once.
struct Iterable {
  Items items;
  std::string name;  // "dict_keys", ..., "generator"
  bool once = false;
  std::size_t taken = 0;  // of `once`
  int depth = 1;
};

// The one thing that changes. Whoever renders owns all of them and empties them in the end, so they may form circles.
struct Namespace {
  std::vector<std::pair<std::string, Value>> members;
  const Value* find(std::string_view name) const;
  void set(std::string_view name, Value value);
};

// A method bound to its object, a function of the environment, or a macro.
struct Callable {
  enum class Kind { kMethod, kFunction, kMacro };
  Kind kind = Kind::kFunction;
  std::string name;
  Value self;  // kMethod
  int depth = 1;
  const Macro* macro = nullptr;  // kMacro; lives as long as the template
  std::weak_ptr<Scope> scope;    // kMacro: where it was defined. Not owned: the scope holds the macro.
};

// What a call was given.
struct Arguments {
  Items positional;
  std::vector<std::pair<std::string, Value>> named;
};

// Fail beyond kValueDepthMax.
Result<Value> make_list(Items items);
Result<Value> make_tuple(Items items);
Result<Value> make_iterator(Items items);  // to be walked once
Result<Value> make_view(std::string name, Items items);
Result<Value> make_method(Value self, std::string_view name);
Value make_dict(Dict dict);
Value make_range(std::int64_t start, std::int64_t stop, std::int64_t step);

// Strings of it, names included, are of `origin`. An integer beyond 64 bits is an error.
Result<Value> value_of_json(const Json& json, Origin origin, Budget& budget);

// "a string", "an undefined value", ... for messages.
const char* type_name(const Value& value);
// The error of doing something with an undefined value.
Failure undefined_error(const Value& value);

bool is_true(const Value& value);
Result<bool> is_equal(const Value& left, const Value& right, Budget& budget);
// Fails for types that have no order; unordered where a NaN is.
Result<std::partial_ordering> order_of(const Value& left, const Value& right, Budget& budget);

// What iterating over it gives; an iterator is used up. Fails for what can't be iterated.
Result<Items> take_items(const Value& value, Budget& budget);
// As len(): characters of a string, entries of a dict. Fails for what has no length.
Result<std::int64_t> length_of(const Value& value, Budget& budget);

}  // namespace nmc::model::jinja
