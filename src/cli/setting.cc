#include "cli/setting.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>

namespace nmc::cli {
namespace {

constexpr std::size_t kQuotedBytesMax = 80;  // of a wrong value in a message

struct ByteUnit {
  std::string_view name;
  unsigned shift;
};
constexpr ByteUnit kByteUnits[] = {{"kib", 10}, {"mib", 20}, {"gib", 30}, {"tib", 40}, {"k", 10},
                                   {"m", 20},   {"g", 30},   {"t", 40},   {"b", 0},    {"", 0}};

std::string lower(std::string_view text) {
  std::string result(text);
  for (char& c : result) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return result;
}

// The whole of `text` as a number, or nothing.
template <typename Number>
std::optional<Number> parse_number(std::string_view text) {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

struct TimeUnit {
  std::string_view name;
  std::int64_t milliseconds;
};
constexpr TimeUnit kTimeUnits[] = {{"", 1}, {"ms", 1}, {"s", 1000}, {"m", 60'000}, {"h", 3'600'000}};

std::optional<std::int64_t> parse_duration(std::string_view text) {
  const std::size_t digits = std::min(text.find_first_not_of("0123456789"), text.size());
  const std::optional<std::int64_t> number = parse_number<std::int64_t>(text.substr(0, digits));
  const auto* unit = std::find_if(std::begin(kTimeUnits), std::end(kTimeUnits),
                                  [&](const TimeUnit& known) { return known.name == text.substr(digits); });
  if (!number || unit == std::end(kTimeUnits)) return std::nullopt;
  if (*number > std::numeric_limits<std::int64_t>::max() / unit->milliseconds) return std::nullopt;
  return *number * unit->milliseconds;
}

std::optional<std::int64_t> parse_bytes(std::string_view text) {
  const std::size_t digits = std::min(text.find_first_not_of("0123456789"), text.size());
  const std::optional<std::int64_t> number = parse_number<std::int64_t>(text.substr(0, digits));
  const std::size_t suffix = std::min(text.find_first_not_of(' ', digits), text.size());
  const std::string unit = lower(text.substr(suffix));
  const auto* found = std::find_if(std::begin(kByteUnits), std::end(kByteUnits),
                                   [&](const ByteUnit& known) { return known.name == unit; });
  if (!number || found == std::end(kByteUnits)) return std::nullopt;
  if (*number > std::numeric_limits<std::int64_t>::max() >> found->shift) return std::nullopt;
  return *number << found->shift;
}

bool holds(const std::vector<std::string>& values, std::string_view value) {
  return std::find(values.begin(), values.end(), value) != values.end();
}

bool in_range(const Setting& setting, std::int64_t number) {
  return (number >= setting.low && number <= setting.high) || (setting.or_zero && number == 0);
}

std::optional<Value> parse_integers(const Setting& setting, std::string_view text) {
  std::vector<std::int64_t> numbers;
  for (bool more = true; more;) {
    const std::size_t comma = text.find(',');
    const std::optional<std::int64_t> number = parse_number<std::int64_t>(text.substr(0, comma));
    if (!number || !in_range(setting, *number)) return std::nullopt;
    numbers.push_back(*number);
    more = comma != std::string_view::npos;
    if (more) text.remove_prefix(comma + 1);
  }
  return numbers;
}

std::optional<Value> parse_words(const Setting& setting, std::string_view text) {
  const Value value = std::string(text);
  for (bool more = true; more;) {
    const std::size_t comma = text.find(',');
    const std::string_view word = text.substr(0, comma);
    if (word.empty() || (!setting.choices.empty() && !holds(setting.choices, word))) return std::nullopt;
    more = comma != std::string_view::npos;
    if (more) text.remove_prefix(comma + 1);
  }
  return value;
}

std::optional<Value> parse_switch(std::string_view text) {
  const std::string word = lower(text);
  if (word == "true" || word == "1" || word == "yes" || word == "on") return true;
  if (word == "false" || word == "0" || word == "no" || word == "off") return false;
  return std::nullopt;
}

std::optional<Value> parse_by_kind(const Setting& setting, std::string_view text) {
  switch (setting.kind) {
    case Kind::kText:
      if (text.empty() && setting.without_effect) return Value();
      if (text.empty() || text.find('\0') != std::string_view::npos) return std::nullopt;
      if (setting.accepts != nullptr && !setting.accepts(text)) return std::nullopt;
      return std::string(text);
    case Kind::kChoice:
      if (!holds(setting.choices, text)) return std::nullopt;
      return std::string(text);
    case Kind::kWords: return parse_words(setting, text);
    case Kind::kInteger: {
      const std::optional<std::int64_t> number = parse_number<std::int64_t>(text);
      if (!number || !in_range(setting, *number)) return std::nullopt;
      return *number;
    }
    case Kind::kIntegers: return parse_integers(setting, text);
    case Kind::kBytes: {
      const std::optional<std::int64_t> number = parse_bytes(text);
      if (!number || !in_range(setting, *number)) return std::nullopt;
      return *number;
    }
    case Kind::kDuration: {
      const std::optional<std::int64_t> number = parse_duration(text);
      if (!number || !in_range(setting, *number)) return std::nullopt;
      return *number;
    }
    case Kind::kSeconds:
    case Kind::kNumber: {
      const std::optional<double> number = parse_number<double>(text);
      if (!number || !std::isfinite(*number)) return std::nullopt;
      if (*number < static_cast<double>(setting.low) || *number > static_cast<double>(setting.high))
        return std::nullopt;
      return *number;
    }
    case Kind::kSwitch: return parse_switch(text);
  }
  return std::nullopt;
}

Result<void> check_supported(const Setting& setting, const std::string& text, std::string_view where) {
  if (!setting.only.empty() && !holds(setting.only, text)) {
    return unsupported("{}: {} is not supported by this version, expected {}", where, text,
                       fmt::join(setting.only, " or "));
  }
  if (holds(setting.unsupported, text)) return unsupported("{}: {} is not supported by this version", where, text);
  return {};
}

std::string range_words(const Setting& setting, auto&& show) {
  const bool open_above = setting.high == std::numeric_limits<std::int64_t>::max();
  if (open_above && setting.low == std::numeric_limits<std::int64_t>::min()) return "of any size";
  if (open_above) return fmt::format("at least {}", show(setting.low));
  return fmt::format("from {} to {}{}", show(setting.low), show(setting.high), setting.or_zero ? ", or 0" : "");
}

std::string quoted(std::string_view text) { return describe_json(Json(std::string(text)), kQuotedBytesMax); }

}  // namespace

std::string variable_name(const Setting& setting) {
  std::string name = "NANO_MOONCAKE_";
  for (const char c : setting.name)
    name += c == '-' ? '_' : static_cast<char>(c >= 'a' && c <= 'z' ? c - 'a' + 'A' : c);
  return name;
}

std::string key_name(const Setting& setting) {
  std::string name = setting.name;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

std::string expectation(const Setting& setting) {
  const auto plain = [](std::int64_t number) { return fmt::format("{}", number); };
  const auto bytes = [](std::int64_t number) { return format_bytes(static_cast<std::uint64_t>(number)); };
  switch (setting.kind) {
    case Kind::kText: return setting.accepts == nullptr ? "text that is not empty" : setting.accepted;
    case Kind::kChoice: {
      std::vector<std::string> supported;
      for (const std::string& choice : setting.choices) {
        if (!holds(setting.unsupported, choice)) supported.push_back(choice);
      }
      return fmt::format("one of {}", fmt::join(supported, ", "));
    }
    case Kind::kWords:
      return setting.choices.empty()
                 ? std::string("words separated by commas")
                 : fmt::format("one or more of {}, separated by commas", fmt::join(setting.choices, ", "));
    case Kind::kInteger: return "a whole number " + range_words(setting, plain);
    case Kind::kIntegers: return "whole numbers " + range_words(setting, plain) + ", separated by commas";
    case Kind::kBytes: return "bytes " + range_words(setting, bytes) + ", plain or with KiB, MiB, GiB or TiB";
    case Kind::kSeconds: return "seconds " + range_words(setting, plain);
    case Kind::kNumber: return "a number " + range_words(setting, plain);
    case Kind::kDuration: return "milliseconds " + range_words(setting, plain) + ", plain or with ms, s, m or h";
    case Kind::kSwitch: return "true or false";
  }
  return "";
}

Result<Value> parse_value(const Setting& setting, std::string_view text, std::string_view where) {
  std::optional<Value> value = parse_by_kind(setting, text);
  if (!value) return invalid_argument("{}: {}: expected {}", where, quoted(text), expectation(setting));
  NMC_RETURN_IF_ERROR(check_supported(setting, text_from_value(*value), where));
  return *std::move(value);
}

Result<Value> value_from_json(const Setting& setting, const Json& json, std::string_view where) {
  const bool decimal = setting.kind == Kind::kSeconds || setting.kind == Kind::kNumber;
  const bool with_unit = setting.kind == Kind::kBytes || setting.kind == Kind::kDuration;
  const bool number = json.is_number_integer() || (json.is_number() && decimal);
  const bool wants_number = setting.kind == Kind::kInteger || decimal || with_unit || setting.kind == Kind::kIntegers;
  const bool wants_text = setting.kind == Kind::kText || setting.kind == Kind::kChoice ||
                          setting.kind == Kind::kWords || with_unit || setting.kind == Kind::kIntegers;
  if (json.is_null()) return Value();
  if (json.is_string() && wants_text) return parse_value(setting, json.get<std::string>(), where);
  if (number && wants_number) return parse_value(setting, dump_json(json), where);
  if (json.is_boolean() && setting.kind == Kind::kSwitch) return Value(json.get<bool>());
  return invalid_argument("{}: {}: expected {}", where, describe_json(json, kQuotedBytesMax), expectation(setting));
}

Json json_from_value(const Value& value) {
  return std::visit(
      [](const auto& held) -> Json {
        if constexpr (std::is_same_v<std::decay_t<decltype(held)>, std::monostate>)
          return nullptr;
        else
          return held;
      },
      value);
}

std::string text_from_value(const Value& value) {
  if (std::holds_alternative<std::monostate>(value)) return "";
  if (const auto* text = std::get_if<std::string>(&value)) return *text;
  if (const auto* numbers = std::get_if<std::vector<std::int64_t>>(&value))
    return fmt::format("{}", fmt::join(*numbers, ","));
  if (const auto* number = std::get_if<double>(&value)) return fmt::format("{}", *number);
  return dump_json(json_from_value(value));
}

std::string format_bytes(std::uint64_t bytes) {
  static constexpr const char* kNames[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  double amount = static_cast<double>(bytes);
  std::size_t unit = 0;
  for (; amount >= 1024 && unit + 1 < std::size(kNames); ++unit) amount /= 1024;
  const std::string digits = fmt::format("{:.1f}", amount);
  return fmt::format("{} {}", digits.ends_with(".0") ? digits.substr(0, digits.size() - 2) : digits, kNames[unit]);
}

}  // namespace nmc::cli
