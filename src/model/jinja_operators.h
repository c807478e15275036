// What the operators of a chat template do, as Python's do it: arithmetic, comparison, members, items and slices.
#pragma once

#include <optional>
#include <string_view>

#include "base/result.h"
#include "model/jinja_value.h"

namespace nmc::model::jinja {

enum class Arithmetic { kAdd, kSubtract, kMultiply, kDivide, kFloorDivide, kModulo, kPower };
enum class Comparison { kEqual, kNotEqual, kLess, kLessEqual, kGreater, kGreaterEqual, kIn, kNotIn };

// Integers that leave 64 bits are an error, where Python would go on.
Result<Value> calculate(Arithmetic op, const Value& left, const Value& right, Budget& budget);
Result<Value> negate(const Value& value);
Result<Value> plus(const Value& value);

Result<bool> compare(Comparison op, const Value& left, const Value& right, Budget& budget);

// object[key]: an item, or a member of that name, or undefined.
Result<Value> get_item(const Value& object, const Value& key, Budget& budget);
// object.name: a member, or an item of that name, or undefined. A loop's members are the interpreter's.
Result<Value> get_attribute(const Value& object, std::string_view name, Budget& budget);

// object[start:stop:step]; none counts as left out.
struct Slice {
  Value start = None();
  Value stop = None();
  Value step = None();
};
Result<Value> get_slice(const Value& object, const Slice& slice, Budget& budget);

}  // namespace nmc::model::jinja
