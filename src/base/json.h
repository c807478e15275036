// JSON in and out. Parsing goes through here so that every input has the same limits: nesting at most `max_depth`,
// valid UTF-8, no duplicate names in one object, nothing after the value. Lone surrogates in escapes become U+FFFD.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace nmc {

// Keys keep the order in which they were written, so that what we print is stable.
using Json = nlohmann::ordered_json;

struct JsonLimits {
  int max_depth = 64;  // "nesting too deep" beyond
  bool allow_duplicate_keys = false;
};

// `what` names the input in messages ("request body", "/x/config.json"). Syntax errors give the byte offset.
Result<Json> parse_json(std::string_view text, std::string_view what, JsonLimits limits = {});

// Typed look at one member of an object, with errors that name the path: "`max_tokens`: expected an integer from 1 to
// 1048576, got -1". `null` counts as absent.
class JsonFields {
 public:
  // `object` must outlive this and be a JSON object (else every getter fails, saying so). `path` is put before names.
  explicit JsonFields(const Json& object, std::string path = "");

  Result<std::int64_t> integer(std::string_view name, std::int64_t low, std::int64_t high) const;
  Result<double> number(std::string_view name, double low, double high) const;
  Result<bool> boolean(std::string_view name) const;
  Result<std::string> string(std::string_view name) const;
  Result<std::vector<std::int64_t>> integers(std::string_view name) const;

  // The same with a value for an absent or null member.
  Result<std::int64_t> integer_or(std::string_view name, std::int64_t low, std::int64_t high,
                                  std::int64_t absent) const;
  Result<double> number_or(std::string_view name, double low, double high, double absent) const;
  Result<bool> boolean_or(std::string_view name, bool absent) const;
  Result<std::string> string_or(std::string_view name, std::string absent) const;

  // Present, be it null.
  bool has(std::string_view name) const;
  // nullptr when absent or null.
  const Json* find(std::string_view name) const;
  std::string path_of(std::string_view name) const;

 private:
  const Json* object_;
  std::string path_;
};

// "an object", "a string", ... for messages.
const char* json_type_name(const Json& value);
// The value as JSON, cut to `bytes_max`, for messages.
std::string describe_json(const Json& value, std::size_t bytes_max = 40);

// One line, or indented by two. Invalid UTF-8 in strings becomes U+FFFD rather than an exception.
std::string dump_json(const Json& value);
std::string dump_json_pretty(const Json& value);

// True when `text` is well-formed UTF-8 (no overlong forms, no surrogates).
bool is_valid_utf8(std::string_view text);

}  // namespace nmc
