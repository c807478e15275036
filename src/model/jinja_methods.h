// Methods of strings, mappings and lists that a chat template may call.
#pragma once

#include <string_view>

#include "base/result.h"
#include "model/jinja_value.h"

namespace nmc::model::jinja {

enum class MethodSupport {
  kNone,      // Python has no such member either
  kCallable,  // call_method() does it
  kChanges,   // it would change its object: Jinja's sandbox refuses that
  kMissing,   // Python has it, we don't
};
MethodSupport method_support(const Value& object, std::string_view name);

// `method` is of Callable::Kind::kMethod.
Result<Value> call_method(const Callable& method, const Arguments& arguments, Budget& budget);

// str.replace() within limits; `limit` below 0: all.
Result<Value> replaced(const Text& text, const Text& old, const Text& by, std::int64_t limit, Budget& budget);

}  // namespace nmc::model::jinja
