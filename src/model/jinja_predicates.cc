// The tests of Jinja: what may follow `is`.
#include <algorithm>

#include "model/jinja_arguments.h"
#include "model/jinja_filters.h"
#include "model/jinja_operators.h"
#include "model/jinja_print.h"
#include "model/jinja_strings.h"

namespace nmc::model::jinja {
namespace {

template <bool (*kHolds)(const Value&)>
Result<bool> simple(const Value& input, const Arguments& arguments, Budget&) {
  NMC_RETURN_IF_ERROR(BoundArguments::bind("test", {}, 0, arguments));
  return kHolds(input);
}
bool is_defined(const Value& value) { return !value.is_undefined(); }
bool is_undefined(const Value& value) { return value.is_undefined(); }
bool is_none(const Value& value) { return value.is_none(); }
bool is_boolean(const Value& value) { return value.boolean() != nullptr; }
bool is_true_itself(const Value& value) { return value.boolean() != nullptr && *value.boolean(); }
bool is_false_itself(const Value& value) { return value.boolean() != nullptr && !*value.boolean(); }
bool is_integer(const Value& value) { return value.integer() != nullptr; }
bool is_float(const Value& value) { return value.real() != nullptr; }
bool is_number(const Value& value) { return value.is_number(); }
bool is_string(const Value& value) { return value.text() != nullptr; }
bool is_mapping(const Value& value) { return value.dict() != nullptr; }
bool is_sequence(const Value& value) {
  return value.is_undefined() || value.text() != nullptr || value.sequence() != nullptr || value.dict() != nullptr ||
         value.range() != nullptr;
}
bool is_iterable(const Value& value) {
  return is_sequence(value) || value.iterable() != nullptr || value.loop() != nullptr;
}
bool is_callable(const Value& value) { return value.is_undefined() || value.callable() != nullptr; }

Result<bool> leaves(const Value& input, const Value& divisor, std::int64_t rest, Budget& budget) {
  NMC_ASSIGN_OR_RETURN(const Value result, calculate(Arithmetic::kModulo, input, divisor, budget));
  return is_equal(result, Value(rest), budget);
}
template <std::int64_t kRest>
Result<bool> halves_to(const Value& input, const Arguments& arguments, Budget& budget) {
  NMC_RETURN_IF_ERROR(BoundArguments::bind("even or odd", {}, 0, arguments));
  return leaves(input, Value(std::int64_t{2}), kRest, budget);
}
Result<bool> divisible_by(const Value& input, const Arguments& arguments, Budget& budget) {
  NMC_ASSIGN_OR_RETURN(const BoundArguments bound, BoundArguments::bind("divisibleby", {"num"}, 1, arguments));
  return leaves(input, bound.at(0), 0, budget);
}

template <Comparison kComparison>
Result<bool> compares(const Value& input, const Arguments& arguments, Budget& budget) {
  NMC_ASSIGN_OR_RETURN(const BoundArguments bound, BoundArguments::bind("comparison", {"other"}, 1, arguments));
  return compare(kComparison, input, bound.at(0), budget);
}

template <LetterCase kCase>
Result<bool> in_that_case(const Value& input, const Arguments& arguments, Budget& budget) {
  NMC_RETURN_IF_ERROR(BoundArguments::bind("upper or lower", {}, 0, arguments));
  NMC_ASSIGN_OR_RETURN(const Text text, to_text(input, budget));
  return is_all_in_case(text.bytes(), kCase);
}

struct Entry {
  std::string_view name;
  Test holds;
};
constexpr Entry kTests[] = {
    {"!=", compares<Comparison::kNotEqual>},
    {"<", compares<Comparison::kLess>},
    {"<=", compares<Comparison::kLessEqual>},
    {"==", compares<Comparison::kEqual>},
    {">", compares<Comparison::kGreater>},
    {">=", compares<Comparison::kGreaterEqual>},
    {"boolean", simple<is_boolean>},
    {"callable", simple<is_callable>},
    {"defined", simple<is_defined>},
    {"divisibleby", divisible_by},
    {"eq", compares<Comparison::kEqual>},
    {"equalto", compares<Comparison::kEqual>},
    {"even", halves_to<0>},
    {"false", simple<is_false_itself>},
    {"float", simple<is_float>},
    {"ge", compares<Comparison::kGreaterEqual>},
    {"greaterthan", compares<Comparison::kGreater>},
    {"gt", compares<Comparison::kGreater>},
    {"in", compares<Comparison::kIn>},
    {"integer", simple<is_integer>},
    {"iterable", simple<is_iterable>},
    {"le", compares<Comparison::kLessEqual>},
    {"lessthan", compares<Comparison::kLess>},
    {"lower", in_that_case<LetterCase::kLower>},
    {"lt", compares<Comparison::kLess>},
    {"mapping", simple<is_mapping>},
    {"ne", compares<Comparison::kNotEqual>},
    {"none", simple<is_none>},
    {"number", simple<is_number>},
    {"odd", halves_to<1>},
    {"sequence", simple<is_sequence>},
    {"string", simple<is_string>},
    {"true", simple<is_true_itself>},
    {"undefined", simple<is_undefined>},
    {"upper", in_that_case<LetterCase::kUpper>},
};

}  // namespace

Test find_test(std::string_view name) {
  const auto it = std::ranges::find(kTests, name, &Entry::name);
  return it == std::end(kTests) ? nullptr : it->holds;
}

}  // namespace nmc::model::jinja
