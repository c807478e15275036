// What a call gave, matched to the parameters of the filter, test, method or function that it calls.
#pragma once

#include <initializer_list>
#include <optional>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "model/jinja_value.h"

namespace nmc::model::jinja {

// `function` is what messages call it.
class BoundArguments {
 public:
  // The first `required` parameters must be given. Fails for what is missing, too much, unknown, or given twice.
  static Result<BoundArguments> bind(std::string_view function, std::initializer_list<std::string_view> parameters,
                                     std::size_t required, const Arguments& arguments);

  // nullptr: not given. As long as this lives.
  const Value* find(std::size_t parameter) const;
  // The same, and also nullptr for none.
  const Value* find_some(std::size_t parameter) const;
  const Value& at(std::size_t parameter) const { return *values_[parameter]; }  // a required one

  // Fail for another type.
  Result<std::int64_t> integer_or(std::size_t parameter, std::int64_t absent) const;
  Result<const Text*> text(std::size_t parameter) const;          // of a required one
  Result<const Text*> text_or_null(std::size_t parameter) const;  // nullptr: absent or none
  bool flag_or(std::size_t parameter, bool absent) const;         // as is_true()

 private:
  Failure wrong_type(std::size_t parameter, std::string_view expected) const;

  std::string_view function_;
  std::vector<std::string_view> parameters_;
  std::vector<std::optional<Value>> values_;
};

}  // namespace nmc::model::jinja
