#include "evidence/json_reader.h"

#include <algorithm>

namespace nmc::evidence {
namespace {

const Json kNothing = Json::object();

bool is_hex_digest(std::string_view text) {
  return text.size() == 64 && text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

bool is_count(const Json& value) { return value.is_number_unsigned() && value.get<std::uint64_t>() <= kCountMax; }

bool is_number(const Json& value) {
  return value.is_number() && value.get<double>() >= -kNumberMax && value.get<double>() <= kNumberMax;
}

}  // namespace

std::string JsonReader::path_of(std::string_view name) const {
  if (name.empty()) return path_;
  return path_.empty() ? std::string(name) : path_ + "." + std::string(name);
}

void JsonReader::refuse(std::string_view name, std::string_view expected, const Json* got) const {
  if (fault_->has_value()) return;
  const std::string found = got == nullptr ? "nothing" : describe_json(*got);
  *fault_ =
      Error{ErrorCode::kInvalidArgument, fmt::format("`{}`: expected {}, got {}", path_of(name), expected, found)};
}

const Json* JsonReader::find(std::string_view name) const {
  if (!json_->is_object()) return nullptr;
  const auto found = json_->find(name);
  if (found != json_->end()) return &*found;
  refuse(name, "a value");
  return nullptr;
}

bool JsonReader::has(std::string_view name) const {
  if (!json_->is_object()) return false;
  const auto found = json_->find(name);
  return found != json_->end() && !found->is_null();
}

void JsonReader::expect_schema(std::string_view expected) const {
  const std::string schema = text("schema");
  if (!faulty() && schema != expected)
    *fault_ = Error{ErrorCode::kVersionMismatch,
                    fmt::format("`schema`: expected \"{}\", got {}", expected, describe_json(Json(schema), 80))};
}

std::string JsonReader::text(std::string_view name) const {
  const Json* const value = find(name);
  if (value == nullptr) return "";
  if (value->is_string()) return value->get<std::string>();
  refuse(name, "a string", value);
  return "";
}

std::string JsonReader::text_of(std::string_view name, std::initializer_list<std::string_view> choices) const {
  std::string value = text(name);
  if (faulty() || std::ranges::find(choices, value) != choices.end()) return value;
  std::string expected = "one of";
  for (const std::string_view choice : choices) expected += fmt::format(" \"{}\"", choice);
  refuse(name, expected, find(name));
  return "";
}

std::string JsonReader::hex_digest(std::string_view name) const {
  std::string value = text(name);
  if (!faulty() && value != "unknown" && !is_hex_digest(value))
    refuse(name, "64 hexadecimal digits, or \"unknown\"", find(name));
  return faulty() ? "" : value;
}

std::uint64_t JsonReader::count(std::string_view name) const {
  const Json* const value = find(name);
  if (value == nullptr) return 0;
  if (is_count(*value)) return value->get<std::uint64_t>();
  refuse(name, "a whole number from 0 to 2^53", value);
  return 0;
}

double JsonReader::number(std::string_view name) const {
  const Json* const value = find(name);
  if (value == nullptr) return 0;
  if (is_number(*value)) return value->get<double>();
  refuse(name, "a number within 1e15", value);
  return 0;
}

bool JsonReader::boolean(std::string_view name) const {
  const Json* const value = find(name);
  if (value == nullptr) return false;
  if (value->is_boolean()) return value->get<bool>();
  refuse(name, "true or false", value);
  return false;
}

Json JsonReader::object(std::string_view name) const {
  const Json* const value = find(name);
  if (value == nullptr) return Json::object();
  if (value->is_object()) return *value;
  refuse(name, "an object", value);
  return Json::object();
}

JsonReader JsonReader::member(std::string_view name) const {
  const Json* const value = find(name);
  return {value == nullptr ? kNothing : *value, path_of(name), fault_};
}

std::vector<JsonReader> JsonReader::items(std::string_view name) const {
  std::vector<JsonReader> items;
  const Json* const value = find(name);
  if (value == nullptr) return items;
  if (!value->is_array()) {
    refuse(name, "an array", value);
    return items;
  }
  for (std::size_t i = 0; i < value->size(); ++i)
    items.emplace_back((*value)[i], fmt::format("{}[{}]", path_of(name), i), fault_);
  return items;
}

std::map<std::string, std::string> JsonReader::texts(std::string_view name) const {
  std::map<std::string, std::string> texts;
  const Json all = object(name);
  const JsonReader reader(all, path_of(name), fault_);
  for (const auto& [key, value] : all.items()) texts[key] = reader.text(key);
  return texts;
}

std::map<std::string, double, std::less<>> JsonReader::numbers(std::string_view name) const {
  std::map<std::string, double, std::less<>> numbers;
  const Json all = object(name);
  const JsonReader reader(all, path_of(name), fault_);
  for (const auto& [key, value] : all.items()) numbers[key] = reader.number(key);
  return numbers;
}

std::map<std::string, std::uint64_t, std::less<>> JsonReader::counts(std::string_view name) const {
  std::map<std::string, std::uint64_t, std::less<>> counts;
  const Json all = object(name);
  const JsonReader reader(all, path_of(name), fault_);
  for (const auto& [key, value] : all.items()) counts[key] = reader.count(key);
  return counts;
}

std::vector<std::string> JsonReader::text_list(std::string_view name) const {
  std::vector<std::string> texts;
  const Json* const value = find(name);
  if (value == nullptr) return texts;
  const bool fits = value->is_array() && std::ranges::all_of(*value, [](const Json& item) { return item.is_string(); });
  if (!fits) {
    refuse(name, "an array of strings", value);
    return texts;
  }
  return value->get<std::vector<std::string>>();
}

}  // namespace nmc::evidence
