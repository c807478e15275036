#include "base/json.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <unordered_set>

namespace nmc {
namespace {

constexpr std::size_t kQuotedBytesMax = 40;  // of a value in a message

// `text`, or its beginning and "..." in `bytes_max` bytes; valid UTF-8 stays so.
std::string shorten(std::string text, std::size_t bytes_max) {
  constexpr std::string_view kDots = "...";
  if (text.size() <= bytes_max) return text;
  text.resize(std::max(bytes_max, kDots.size()) - kDots.size());
  while (!text.empty() && !is_valid_utf8(text)) text.pop_back();
  return text.append(kDots);
}

// Builds a Json from parser events and stops at the first broken limit. The parser itself is iterative over these
// events, so depth costs heap and not stack.
class LimitedBuilder final : public nlohmann::json_sax<Json> {
 public:
  LimitedBuilder(std::string_view what, JsonLimits limits) : what_(what), limits_(limits) {}

  bool null() override { return add(nullptr); }
  bool boolean(bool value) override { return add(value); }
  bool number_integer(std::int64_t value) override { return add(value); }
  bool number_unsigned(std::uint64_t value) override { return add(value); }
  bool number_float(double value, const std::string&) override { return add(value); }  // finite: see parse_error
  bool string(std::string& value) override { return add(std::move(value)); }
  bool binary(Json::binary_t&) override { return refuse("binary value"); }
  bool start_object(std::size_t) override { return open(Json::object()); }
  bool start_array(std::size_t) override { return open(Json::array()); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool key(std::string& name) override {
    if (!limits_.allow_duplicate_keys && !names_.back().insert(name).second) {
      return refuse(fmt::format("duplicate name \"{}\"", shorten(name, kQuotedBytesMax)));
    }
    key_ = std::move(name);
    return true;
  }
  bool parse_error(std::size_t position, const std::string& token, const nlohmann::detail::exception& error) override {
    constexpr int kNumberOutOfRange = 406;  // the parser's number for a number that a double can't hold
    if (error.id == kNumberOutOfRange) {
      return refuse(fmt::format("number {} is out of range", shorten(token, kQuotedBytesMax)));
    }
    return refuse(fmt::format("not valid JSON at byte {}", position));
  }

  Result<Json> take() {
    if (!reason_.empty()) return invalid_argument("{}: {}", what_, reason_);
    return std::move(root_);
  }

 private:
  Json* place(Json&& value) {
    if (stack_.empty()) {
      root_ = std::move(value);
      return &root_;
    }
    Json& parent = *stack_.back();
    if (parent.is_array()) {
      parent.push_back(std::move(value));
      return &parent.back();
    }
    if (limits_.allow_duplicate_keys) return &(parent[key_] = std::move(value));
    // The name is known to be new (key()), and an ordered object's operator[] would search all names before it.
    return &parent.get_ref<Json::object_t&>().emplace_back(std::move(key_), std::move(value)).second;
  }
  template <typename T>
  bool add(T&& value) {
    place(Json(std::forward<T>(value)));
    return true;
  }
  bool open(Json&& container) {
    if (static_cast<int>(stack_.size()) >= limits_.max_depth) {
      return refuse(fmt::format("nesting too deep, expected at most {} levels", limits_.max_depth));
    }
    stack_.push_back(place(std::move(container)));
    names_.emplace_back();
    return true;
  }
  bool close() {
    stack_.pop_back();
    names_.pop_back();
    return true;
  }
  bool refuse(std::string reason) {
    if (reason_.empty()) reason_ = std::move(reason);
    return false;
  }

  std::string_view what_;
  JsonLimits limits_;
  Json root_;
  std::vector<Json*> stack_;
  std::vector<std::unordered_set<std::string>> names_;
  std::string key_;
  std::string reason_;
};

// nlohmann's parser turns a lone surrogate escape into an error; JSON allows it, and clients send it. Rewrites such
// escapes to \ufffd before parsing.
std::string replace_lone_surrogates(std::string_view text) {
  const auto hex4 = [&](std::size_t at) -> int {
    if (at + 6 > text.size() || text[at] != '\\' || text[at + 1] != 'u') return -1;
    int value = 0;
    for (std::size_t i = at + 2; i < at + 6; ++i) {
      const char c = text[i];
      const int digit = c >= '0' && c <= '9' ? c - '0' : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10 : -1;
      if (digit < 0) return -1;
      value = value * 16 + digit;
    }
    return value;
  };
  std::string out(text);
  for (std::size_t i = 0; i + 1 < text.size(); ++i) {
    if (text[i] != '\\') continue;
    const int unit = hex4(i);
    if (unit >= 0xD800 && unit <= 0xDBFF) {
      const int next = hex4(i + 6);
      if (next >= 0xDC00 && next <= 0xDFFF) {
        i += 11;
      } else {
        out.replace(i, 6, "\\ufffd");
        i += 5;
      }
    } else if (unit >= 0xDC00 && unit <= 0xDFFF) {
      out.replace(i, 6, "\\ufffd");
      i += 5;
    } else {
      ++i;  // skip the escaped character
    }
  }
  return out;
}

}  // namespace

Result<Json> parse_json(std::string_view text, std::string_view what, JsonLimits limits) {
  LimitedBuilder builder(what, limits);
  const bool has_surrogates = text.find("\\u") != std::string_view::npos;
  if (has_surrogates) {
    const std::string repaired = replace_lone_surrogates(text);
    Json::sax_parse(repaired, &builder);
  } else {
    Json::sax_parse(text, &builder);
  }
  return builder.take();
}

JsonFields::JsonFields(const Json& object, std::string path) : object_(&object), path_(std::move(path)) {}

std::string JsonFields::path_of(std::string_view name) const {
  return path_.empty() ? std::string(name) : fmt::format("{}.{}", path_, name);
}

bool JsonFields::has(std::string_view name) const {
  return object_->is_object() && object_->contains(std::string(name));
}

const Json* JsonFields::find(std::string_view name) const {
  if (!object_->is_object()) return nullptr;
  const auto it = object_->find(std::string(name));
  if (it == object_->end() || it->is_null()) return nullptr;
  return &*it;
}

#define NMC_FIND_OR_FAIL(value, name) \
  const Json* value = find(name);     \
  if (value == nullptr) return invalid_argument("`{}`: missing", path_of(name))

Result<std::int64_t> JsonFields::integer(std::string_view name, std::int64_t low, std::int64_t high) const {
  NMC_FIND_OR_FAIL(value, name);
  const bool too_big = value->is_number_unsigned() && value->get<std::uint64_t>() > INT64_MAX;
  if (!value->is_number_integer() || too_big || value->get<std::int64_t>() < low || value->get<std::int64_t>() > high) {
    return invalid_argument("`{}`: expected an integer from {} to {}, got {}", path_of(name), low, high,
                            describe_json(*value));
  }
  return value->get<std::int64_t>();
}

Result<double> JsonFields::number(std::string_view name, double low, double high) const {
  NMC_FIND_OR_FAIL(value, name);
  if (!value->is_number() || !(value->get<double>() >= low && value->get<double>() <= high)) {
    return invalid_argument("`{}`: expected a number from {} to {}, got {}", path_of(name), low, high,
                            describe_json(*value));
  }
  return value->get<double>();
}

Result<bool> JsonFields::boolean(std::string_view name) const {
  NMC_FIND_OR_FAIL(value, name);
  if (!value->is_boolean()) {
    return invalid_argument("`{}`: expected true or false, got {}", path_of(name), describe_json(*value));
  }
  return value->get<bool>();
}

Result<std::string> JsonFields::string(std::string_view name) const {
  NMC_FIND_OR_FAIL(value, name);
  if (!value->is_string()) {
    return invalid_argument("`{}`: expected a string, got {}", path_of(name), describe_json(*value));
  }
  return value->get<std::string>();
}

Result<std::vector<std::int64_t>> JsonFields::integers(std::string_view name) const {
  NMC_FIND_OR_FAIL(value, name);
  std::vector<std::int64_t> numbers;
  bool fits = value->is_array();
  if (fits) {
    for (const Json& item : *value) {
      fits = item.is_number_integer() && !(item.is_number_unsigned() && item.get<std::uint64_t>() > INT64_MAX);
      if (!fits) break;
      numbers.push_back(item.get<std::int64_t>());
    }
  }
  if (!fits) {
    return invalid_argument("`{}`: expected an array of integers, got {}", path_of(name), describe_json(*value));
  }
  return numbers;
}
#undef NMC_FIND_OR_FAIL

Result<std::int64_t> JsonFields::integer_or(std::string_view name, std::int64_t low, std::int64_t high,
                                            std::int64_t absent) const {
  if (find(name) == nullptr) return absent;
  return integer(name, low, high);
}
Result<double> JsonFields::number_or(std::string_view name, double low, double high, double absent) const {
  if (find(name) == nullptr) return absent;
  return number(name, low, high);
}
Result<bool> JsonFields::boolean_or(std::string_view name, bool absent) const {
  if (find(name) == nullptr) return absent;
  return boolean(name);
}
Result<std::string> JsonFields::string_or(std::string_view name, std::string absent) const {
  if (find(name) == nullptr) return absent;
  return string(name);
}

const char* json_type_name(const Json& value) {
  switch (value.type()) {
    case Json::value_t::null: return "null";
    case Json::value_t::object: return "an object";
    case Json::value_t::array: return "an array";
    case Json::value_t::string: return "a string";
    case Json::value_t::boolean: return "a boolean";
    case Json::value_t::number_integer:
    case Json::value_t::number_unsigned: return "an integer";
    case Json::value_t::number_float: return "a number";
    default: return "a value";
  }
}

std::string describe_json(const Json& value, std::size_t bytes_max) { return shorten(dump_json(value), bytes_max); }

std::string dump_json(const Json& value) { return value.dump(-1, ' ', false, Json::error_handler_t::replace); }
std::string dump_json_pretty(const Json& value) { return value.dump(2, ' ', false, Json::error_handler_t::replace); }

bool is_valid_utf8(std::string_view text) {
  std::size_t i = 0;
  while (i < text.size()) {
    const auto byte = [&](std::size_t k) { return static_cast<unsigned char>(text[k]); };
    const unsigned char lead = byte(i);
    if (lead < 0x80) {
      ++i;
      continue;
    }
    const std::size_t size = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
    if (lead < 0xC2 || lead > 0xF4 || i + size > text.size()) return false;
    for (std::size_t k = i + 1; k < i + size; ++k) {
      if ((byte(k) & 0xC0) != 0x80) return false;
    }
    const unsigned char second = byte(i + 1);
    if ((lead == 0xE0 && second < 0xA0) || (lead == 0xED && second > 0x9F) || (lead == 0xF0 && second < 0x90) ||
        (lead == 0xF4 && second > 0x8F)) {
      return false;
    }
    i += size;
  }
  return true;
}

}  // namespace nmc
