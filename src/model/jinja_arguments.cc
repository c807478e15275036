#include "model/jinja_arguments.h"

#include <algorithm>

namespace nmc::model::jinja {

Result<BoundArguments> BoundArguments::bind(std::string_view function,
                                            std::initializer_list<std::string_view> parameters, std::size_t required,
                                            const Arguments& arguments) {
  BoundArguments bound;
  bound.function_ = function;
  bound.parameters_ = parameters;
  bound.values_.resize(parameters.size());
  if (arguments.positional.size() > parameters.size()) {
    return invalid_argument("`{}`: expected at most {} arguments, got {}", function, parameters.size(),
                            arguments.positional.size());
  }
  std::ranges::copy(arguments.positional, bound.values_.begin());
  for (const auto& [name, value] : arguments.named) {
    const auto it = std::ranges::find(bound.parameters_, name);
    if (it == bound.parameters_.end()) return invalid_argument("`{}`: unknown argument `{}`", function, name);
    std::optional<Value>& slot = bound.values_[static_cast<std::size_t>(it - bound.parameters_.begin())];
    if (slot) return invalid_argument("`{}`: two values for `{}`", function, name);
    slot = value;
  }
  for (std::size_t i = 0; i < required; ++i) {
    if (!bound.values_[i]) return invalid_argument("`{}`: argument `{}` is missing", function, bound.parameters_[i]);
  }
  return bound;
}

const Value* BoundArguments::find(std::size_t parameter) const {
  return values_[parameter] ? &*values_[parameter] : nullptr;
}

const Value* BoundArguments::find_some(std::size_t parameter) const {
  const Value* value = find(parameter);
  return value == nullptr || value->is_none() ? nullptr : value;
}

Failure BoundArguments::wrong_type(std::size_t parameter, std::string_view expected) const {
  const Value& value = at(parameter);
  if (value.is_undefined()) return undefined_error(value);
  return invalid_argument("`{}`: expected {} as `{}`, got {}", function_, expected, parameters_[parameter],
                          type_name(value));
}

Result<std::int64_t> BoundArguments::integer_or(std::size_t parameter, std::int64_t absent) const {
  const Value* value = find(parameter);
  if (value == nullptr) return absent;
  std::int64_t scratch = 0;
  const std::int64_t* whole = value->whole(scratch);
  return whole != nullptr ? Result<std::int64_t>(*whole) : wrong_type(parameter, "an integer");
}

Result<const Text*> BoundArguments::text(std::size_t parameter) const {
  const Text* text = at(parameter).text();
  return text != nullptr ? Result<const Text*>(text) : wrong_type(parameter, "a string");
}

Result<const Text*> BoundArguments::text_or_null(std::size_t parameter) const {
  return find_some(parameter) == nullptr ? Result<const Text*>(nullptr) : text(parameter);
}

bool BoundArguments::flag_or(std::size_t parameter, bool absent) const {
  const Value* value = find(parameter);
  return value == nullptr ? absent : is_true(*value);
}

}  // namespace nmc::model::jinja
