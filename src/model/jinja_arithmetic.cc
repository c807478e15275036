#include <cmath>
#include <limits>

#include "model/jinja_operators.h"

namespace nmc::model::jinja {
namespace {

constexpr const char* symbol_of(Arithmetic op) {
  constexpr const char* kSymbols[] = {"+", "-", "*", "/", "//", "%", "**"};
  return kSymbols[static_cast<std::size_t>(op)];
}

Failure no_such_operation(Arithmetic op, const Value& left, const Value& right) {
  if (left.is_undefined()) return undefined_error(left);
  if (right.is_undefined()) return undefined_error(right);
  return invalid_argument("`{}` doesn't go with {} and {}", symbol_of(op), type_name(left), type_name(right));
}

Failure overflow(Arithmetic op) { return invalid_argument("the result of `{}` has more than 64 bits", symbol_of(op)); }
Failure division_by_zero(Arithmetic op) { return invalid_argument("`{}` by zero", symbol_of(op)); }

Result<Value> power_of_integers(std::int64_t base, std::int64_t exponent) {
  if (exponent < 0) {
    if (base == 0) return division_by_zero(Arithmetic::kPower);
    return Value(std::pow(static_cast<double>(base), static_cast<double>(exponent)));
  }
  std::int64_t result = 1;
  while (exponent > 0) {
    if (exponent % 2 == 1 && __builtin_mul_overflow(result, base, &result)) return overflow(Arithmetic::kPower);
    exponent /= 2;
    // The square is only needed when there is more to come.
    if (exponent > 0 && __builtin_mul_overflow(base, base, &base)) return overflow(Arithmetic::kPower);
  }
  return Value(result);
}

Result<Value> calculate_integers(Arithmetic op, std::int64_t a, std::int64_t b) {
  constexpr std::int64_t kMin = std::numeric_limits<std::int64_t>::min();
  std::int64_t result = 0;
  switch (op) {
    case Arithmetic::kAdd:
      if (__builtin_add_overflow(a, b, &result)) return overflow(op);
      return Value(result);
    case Arithmetic::kSubtract:
      if (__builtin_sub_overflow(a, b, &result)) return overflow(op);
      return Value(result);
    case Arithmetic::kMultiply:
      if (__builtin_mul_overflow(a, b, &result)) return overflow(op);
      return Value(result);
    case Arithmetic::kDivide:
      if (b == 0) return division_by_zero(op);
      return Value(static_cast<double>(static_cast<long double>(a) / static_cast<long double>(b)));
    case Arithmetic::kFloorDivide:
      if (b == 0) return division_by_zero(op);
      if (a == kMin && b == -1) return overflow(op);
      return Value(std::int64_t{a / b - ((a % b != 0 && (a < 0) != (b < 0)) ? 1 : 0)});
    case Arithmetic::kModulo:
      if (b == 0) return division_by_zero(op);
      if (b == -1) return Value(std::int64_t{0});
      return Value(std::int64_t{a % b + ((a % b != 0 && (a < 0) != (b < 0)) ? b : 0)});
    case Arithmetic::kPower: return power_of_integers(a, b);
  }
  return overflow(op);
}

// The sign of a remainder is the divisor's.
double modulo(double a, double b) {
  const double rest = std::fmod(a, b);
  if (rest == 0) return std::copysign(0.0, b);
  return (b < 0) != (rest < 0) ? rest + b : rest;
}

double floor_divide(double a, double b) {
  const double rest = modulo(a, b);
  const double quotient = (a - rest) / b;
  if (quotient == 0) return std::copysign(0.0, a / b);
  const double floor = std::floor(quotient);
  return quotient - floor > 0.5 ? floor + 1 : floor;
}

Result<Value> power_of_reals(double base, double exponent) {
  if (base == 0 && exponent < 0) return division_by_zero(Arithmetic::kPower);
  const double result = std::pow(base, exponent);
  const bool of_numbers = std::isfinite(base) && std::isfinite(exponent);
  if (of_numbers && std::isnan(result)) return invalid_argument("the result of `**` isn't a real number");
  if (of_numbers && std::isinf(result)) return invalid_argument("the result of `**` is too large");
  return Value(result);
}

Result<Value> calculate_reals(Arithmetic op, double a, double b) {
  switch (op) {
    case Arithmetic::kAdd: return Value(a + b);
    case Arithmetic::kSubtract: return Value(a - b);
    case Arithmetic::kMultiply: return Value(a * b);
    case Arithmetic::kPower: return power_of_reals(a, b);
    default: break;
  }
  if (b == 0) return division_by_zero(op);
  if (op == Arithmetic::kDivide) return Value(a / b);
  return Value(op == Arithmetic::kModulo ? modulo(a, b) : floor_divide(a, b));
}

Result<Value> calculate_numbers(Arithmetic op, const Value& left, const Value& right) {
  std::int64_t a = 0, b = 0;
  const std::int64_t* whole_left = left.whole(a);
  const std::int64_t* whole_right = right.whole(b);
  if (whole_left != nullptr && whole_right != nullptr) return calculate_integers(op, *whole_left, *whole_right);
  return calculate_reals(op, left.as_double(), right.as_double());
}

Result<Value> join_texts(const Text& left, const Text& right, Budget& budget) {
  NMC_RETURN_IF_ERROR(budget.take_bytes(left.cost() + right.cost()));
  Text joined = left;
  joined.append(right);
  return Value(std::move(joined));
}

Result<Value> join_sequences(const Sequence& left, const Sequence& right, Budget& budget) {
  NMC_RETURN_IF_ERROR(budget.take_steps(left.items.size() + right.items.size()));
  Items items = left.items;
  items.insert(items.end(), right.items.begin(), right.items.end());
  return left.is_tuple ? make_tuple(std::move(items)) : make_list(std::move(items));
}

Result<Value> repeat(const Value& value, std::int64_t times, Budget& budget) {
  const auto count = static_cast<std::uint64_t>(std::max<std::int64_t>(times, 0));
  const auto total = [&](std::uint64_t one) {
    std::uint64_t product = 0;
    return __builtin_mul_overflow(one, count, &product) ? std::numeric_limits<std::uint64_t>::max() : product;
  };
  if (const Text* text = value.text()) {
    const bool stays_one_run = text->cost() <= text->size() + Text::kRunCost;
    NMC_RETURN_IF_ERROR(budget.take_bytes(total(stays_one_run ? text->size() : text->cost())));
    Text repeated;
    for (std::uint64_t i = 0; !text->empty() && i < count; ++i) repeated.append(*text);
    return Value(std::move(repeated));
  }
  const Sequence& sequence = *value.sequence();
  NMC_RETURN_IF_ERROR(budget.take_steps(total(sequence.items.size())));
  Items items;
  for (std::uint64_t i = 0; !sequence.items.empty() && i < count; ++i) {
    items.insert(items.end(), sequence.items.begin(), sequence.items.end());
  }
  return sequence.is_tuple ? make_tuple(std::move(items)) : make_list(std::move(items));
}

bool can_repeat(const Value& value) { return value.text() != nullptr || value.sequence() != nullptr; }

}  // namespace

Result<Value> calculate(Arithmetic op, const Value& left, const Value& right, Budget& budget) {
  if (left.is_number() && right.is_number()) return calculate_numbers(op, left, right);
  if (op == Arithmetic::kAdd) {
    if (left.text() != nullptr && right.text() != nullptr) return join_texts(*left.text(), *right.text(), budget);
    const Sequence *a = left.sequence(), *b = right.sequence();
    if (a != nullptr && b != nullptr && a->is_tuple == b->is_tuple) return join_sequences(*a, *b, budget);
  }
  if (op == Arithmetic::kMultiply) {
    std::int64_t scratch = 0;
    if (const std::int64_t* times = right.whole(scratch); times != nullptr && can_repeat(left)) {
      return repeat(left, *times, budget);
    }
    if (const std::int64_t* times = left.whole(scratch); times != nullptr && can_repeat(right)) {
      return repeat(right, *times, budget);
    }
  }
  if (op == Arithmetic::kModulo && left.text() != nullptr && !right.is_undefined()) {
    return unsupported("`%` as the formatting of a string isn't supported");
  }
  return no_such_operation(op, left, right);
}

Result<Value> negate(const Value& value) {
  if (value.is_undefined()) return undefined_error(value);
  if (const double* real = value.real()) return Value(-*real);
  std::int64_t scratch = 0;
  const std::int64_t* whole = value.whole(scratch);
  if (whole == nullptr) return invalid_argument("`-` doesn't go with {}", type_name(value));
  std::int64_t result = 0;
  if (__builtin_sub_overflow(std::int64_t{0}, *whole, &result)) return overflow(Arithmetic::kSubtract);
  return Value(result);
}

Result<Value> plus(const Value& value) {
  if (value.is_undefined()) return undefined_error(value);
  if (value.real() != nullptr) return value;
  std::int64_t scratch = 0;
  const std::int64_t* whole = value.whole(scratch);
  if (whole == nullptr) return invalid_argument("`+` doesn't go with {}", type_name(value));
  return Value(*whole);
}

}  // namespace nmc::model::jinja
