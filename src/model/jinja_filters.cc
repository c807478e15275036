#include "model/jinja_filters.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "model/jinja_arguments.h"
#include "model/jinja_methods.h"
#include "model/jinja_numbers.h"
#include "model/jinja_print.h"
#include "model/jinja_strings.h"

namespace nmc::model::jinja {
namespace {

// ---- Strings
// ---------------------------------------------------------------------------------------------------------

template <Text (*kChange)(const Text&)>
Result<Value> change(const Value& input, const Arguments& arguments, Budget& budget) {
  NMC_RETURN_IF_ERROR(BoundArguments::bind("filter", {}, 0, arguments));
  NMC_ASSIGN_OR_RETURN(const Text text, to_text(input, budget));
  NMC_RETURN_IF_ERROR(budget.take_bytes(text.size()));
  return Value(kChange(text));
}
Text to_upper(const Text& text) { return in_case(text, LetterCase::kUpper); }
Text to_lower(const Text& text) { return in_case(text, LetterCase::kLower); }
Text same(const Text& text) { return text; }

Result<Value> trim(const Value& input, const Arguments& arguments, Budget& budget) {
  NMC_ASSIGN_OR_RETURN(Text text, to_text(input, budget));
  NMC_ASSIGN_OR_RETURN(const Value method, make_method(Value(std::move(text)), "strip"));
  return call_method(*method.callable(), arguments, budget);
}

Result<Value> replace_in(const Value& input, const Arguments& arguments, Budget& budget) {
  NMC_ASSIGN_OR_RETURN(const BoundArguments bound,
                       BoundArguments::bind("replace", {"old", "new", "count"}, 2, arguments));
  NMC_ASSIGN_OR_RETURN(const Text text, to_text(input, budget));
  NMC_ASSIGN_OR_RETURN(const Text old, to_text(bound.at(0), budget));
  NMC_ASSIGN_OR_RETURN(const Text by, to_text(bound.at(1), budget));
  std::int64_t limit = -1;
  if (bound.find_some(2) != nullptr) {
    NMC_ASSIGN_OR_RETURN(limit, bound.integer_or(2, -1));
  }
  return replaced(text, old, by, limit, budget);
}

// What a level of indentation is: a string, or so many spaces.
Result<Text> indentation(const Value& width, std::string_view filter, Budget& budget) {
  if (const Text* text = width.text()) return *text;
  std::int64_t scratch = 0;
  const std::int64_t* count = width.whole(scratch);
  if (count == nullptr)
    return invalid_argument("`{}`: expected a number or a string, got {}", filter, type_name(width));
  const auto spaces = static_cast<std::uint64_t>(std::max<std::int64_t>(*count, 0));
  NMC_RETURN_IF_ERROR(budget.take_bytes(spaces));
  return Text(std::string(spaces, ' '));
}

Result<Value> indent(const Value& input, const Arguments& arguments, Budget& budget) {
  NMC_ASSIGN_OR_RETURN(const BoundArguments bound,
                       BoundArguments::bind("indent", {"width", "first", "blank"}, 0, arguments));
  if (input.is_undefined()) return undefined_error(input);
  if (input.text() == nullptr) return invalid_argument("`indent`: expected a string, got {}", type_name(input));
  NMC_ASSIGN_OR_RETURN(const Text margin,
                       indentation(bound.find(0) == nullptr ? Value(std::int64_t{4}) : bound.at(0), "indent", budget));
  Text source = *input.text();
  source.append("\n", Origin::kTemplate);  // so that a line break at the end stays
  NMC_RETURN_IF_ERROR(budget.take_bytes(source.size()));
  const std::vector<Text> lines = split_lines(source, false);
  NMC_RETURN_IF_ERROR(budget.take_steps(lines.size()));
  NMC_RETURN_IF_ERROR(budget.take_bytes(lines.size() * (margin.cost() + Text::kRunCost) + source.cost()));
  Text out;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) out.append("\n", Origin::kTemplate);
    const bool indented = i == 0 ? bound.flag_or(1, false) : !lines[i].empty() || bound.flag_or(2, false);
    if (indented) out.append(margin);
    out.append(lines[i]);
  }
  return Value(std::move(out));
}

Result<void> read_separators(const Value& value, JsonFormat& format) {
  const Sequence* pair = value.sequence();
  if (pair == nullptr || pair->items.size() != 2 || pair->items[0].text() == nullptr ||
      pair->items[1].text() == nullptr) {
    return invalid_argument("`tojson`: expected two strings as `separators`, got {}", type_name(value));
  }
  format.item_separator = *pair->items[0].text();
  format.key_separator = *pair->items[1].text();
  return {};
}

Result<Value> tojson(const Value& input, const Arguments& arguments, Budget& budget) {
  NMC_ASSIGN_OR_RETURN(
      const BoundArguments bound,
      BoundArguments::bind("tojson", {"ensure_ascii", "indent", "separators", "sort_keys"}, 0, arguments));
  JsonFormat format;
  format.ensure_ascii = bound.flag_or(0, false);
  format.sort_keys = bound.flag_or(3, false);
  if (const Value* width = bound.find_some(1)) {
    NMC_ASSIGN_OR_RETURN(format.indent, indentation(*width, "tojson", budget));
    format.item_separator = Text(",");
  }
  if (const Value* separators = bound.find_some(2)) NMC_RETURN_IF_ERROR(read_separators(*separators, format));
  NMC_ASSIGN_OR_RETURN(Text text, to_json(input, format, budget));
  return Value(std::move(text));
}

// ---- Numbers
// ---------------------------------------------------------------------------------------------------------

Result<Value> absolute(const Value& input, const Arguments& arguments, Budget&) {
  NMC_RETURN_IF_ERROR(BoundArguments::bind("abs", {}, 0, arguments));
  if (const double* real = input.real()) return Value(std::abs(*real));
  std::int64_t scratch = 0;
  const std::int64_t* whole = input.whole(scratch);
  if (whole == nullptr) return invalid_argument("`abs`: expected a number, got {}", type_name(input));
  if (*whole == std::numeric_limits<std::int64_t>::min()) {
    return invalid_argument("`abs`: the result has more than 64 bits");
  }
  return Value(std::int64_t{std::abs(*whole)});
}

Result<Value> to_integer(const Value& input, const Arguments& arguments, Budget& budget) {
  NMC_ASSIGN_OR_RETURN(const BoundArguments bound, BoundArguments::bind("int", {"default", "base"}, 0, arguments));
  const Value absent = bound.find(0) == nullptr ? Value(std::int64_t{0}) : bound.at(0);
  NMC_ASSIGN_OR_RETURN(const std::int64_t base, bound.integer_or(1, 10));
  if (input.is_undefined()) return undefined_error(input);
  std::int64_t scratch = 0;
  if (const std::int64_t* whole = input.whole(scratch)) return Value(*whole);
  if (const double* real = input.real()) return truncated(*real, absent, true);
  const Text* text = input.text();
  if (text == nullptr) return absent;
  NMC_RETURN_IF_ERROR(budget.take_bytes(text->size()));
  NMC_ASSIGN_OR_RETURN(const std::optional<std::int64_t> integer, parse_integer(text->bytes(), base));
  if (integer) return Value(*integer);
  const std::optional<double> real = parse_float(text->bytes());
  return real ? truncated(*real, absent, false) : Result<Value>(absent);
}

Result<Value> to_float(const Value& input, const Arguments& arguments, Budget& budget) {
  NMC_ASSIGN_OR_RETURN(const BoundArguments bound, BoundArguments::bind("float", {"default"}, 0, arguments));
  const Value absent = bound.find(0) == nullptr ? Value(0.0) : bound.at(0);
  if (input.is_undefined()) return undefined_error(input);
  if (input.is_number()) return Value(input.as_double());
  const Text* text = input.text();
  if (text == nullptr) return absent;
  NMC_RETURN_IF_ERROR(budget.take_bytes(text->size()));
  const std::optional<double> real = parse_float(text->bytes());
  return real ? Value(*real) : absent;
}

Result<Value> round_number(const Value& input, const Arguments& arguments, Budget&) {
  NMC_ASSIGN_OR_RETURN(const BoundArguments bound,
                       BoundArguments::bind("round", {"precision", "method"}, 0, arguments));
  NMC_ASSIGN_OR_RETURN(const std::int64_t digits, bound.integer_or(0, 0));
  std::string_view method = "common";
  if (bound.find(1) != nullptr) {
    NMC_ASSIGN_OR_RETURN(const Text* given, bound.text(1));
    method = given->bytes();
  }
  if (method != "common" && method != "ceil" && method != "floor") {
    return invalid_argument("`round`: expected common, ceil or floor as `method`, got {}", method);
  }
  if (!input.is_number()) return invalid_argument("`round`: expected a number, got {}", type_name(input));
  if (digits < 0 || digits > kRoundDigitsMax) {
    return unsupported("`round`: only precisions from 0 to {} are supported, got {}", kRoundDigitsMax, digits);
  }
  std::int64_t scratch = 0;
  const std::int64_t* whole = input.whole(scratch);
  if (method == "common") return whole != nullptr ? Value(*whole) : Value(rounded(*input.real(), digits));
  return rounded_to(input.as_double(), digits, method == "ceil");
}

// ---- Others
// ----------------------------------------------------------------------------------------------------------

Result<Value> default_value(const Value& input, const Arguments& arguments, Budget&) {
  NMC_ASSIGN_OR_RETURN(const BoundArguments bound,
                       BoundArguments::bind("default", {"default_value", "boolean"}, 0, arguments));
  const bool replaced_too = bound.flag_or(1, false) && !is_true(input);
  if (!input.is_undefined() && !replaced_too) return input;
  return bound.find(0) == nullptr ? Value(Text()) : bound.at(0);
}

Result<Value> length(const Value& input, const Arguments& arguments, Budget& budget) {
  NMC_RETURN_IF_ERROR(BoundArguments::bind("length", {}, 0, arguments));
  NMC_ASSIGN_OR_RETURN(const std::int64_t count, length_of(input, budget));
  return Value(count);
}

constexpr FilterEntry kFilters[] = {
    {"abs", absolute},
    {"capitalize", change<capitalize>},
    {"count", length},
    {"d", default_value},
    {"default", default_value},
    {"float", to_float},
    {"indent", indent},
    {"int", to_integer},
    {"length", length},
    {"lower", change<to_lower>},
    {"replace", replace_in},
    {"round", round_number},
    {"safe", change<same>},
    {"string", change<same>},
    {"title", change<title_words>},
    {"tojson", tojson},
    {"trim", trim},
    {"upper", change<to_upper>},
};

}  // namespace

Filter find_filter(std::string_view name) {
  for (const std::span<const FilterEntry> table : {std::span<const FilterEntry>(kFilters), list_filters()}) {
    const auto it = std::ranges::find(table, name, &FilterEntry::name);
    if (it != table.end()) return it->apply;
  }
  return nullptr;
}

}  // namespace nmc::model::jinja
