// A JSON object read member by member into plain values: the first thing that isn't as it should be sticks, with its
// path, and everything read afterwards is empty. So a reader says what there has to be and checks once, at its end.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"

namespace nmc::evidence {

inline constexpr std::uint64_t kCountMax = std::uint64_t{1} << 53;  // whole numbers that every JSON reader tells apart
inline constexpr double kNumberMax = 1e15;

// One thread; `json` and `fault` outlive it.
class JsonReader {
 public:
  JsonReader(const Json& json, std::string path, std::optional<Error>* fault)
      : json_(&json), path_(std::move(path)), fault_(fault) {
    if (!json.is_object()) refuse("", "an object", &json);
  }

  // Refuses as kVersionMismatch whatever has another "schema".
  void expect_schema(std::string_view expected) const;
  std::string text(std::string_view name) const;
  std::string text_of(std::string_view name, std::initializer_list<std::string_view> choices) const;
  std::string hex_digest(std::string_view name) const;  // 64 digits, or "unknown"
  std::uint64_t count(std::string_view name) const;
  double number(std::string_view name) const;
  bool boolean(std::string_view name) const;
  Json object(std::string_view name) const;  // as it stands
  std::map<std::string, std::string> texts(std::string_view name) const;
  std::map<std::string, double, std::less<>> numbers(std::string_view name) const;
  std::map<std::string, std::uint64_t, std::less<>> counts(std::string_view name) const;
  std::vector<std::string> text_list(std::string_view name) const;

  bool has(std::string_view name) const;  // present and not null
  JsonReader member(std::string_view name) const;
  std::vector<JsonReader> items(std::string_view name) const;  // an array of objects

  bool faulty() const { return fault_->has_value(); }
  // Unless something was refused before: "PATH.name: expected ..., got ...".
  void refuse(std::string_view name, std::string_view expected, const Json* got = nullptr) const;

 private:
  const Json* find(std::string_view name) const;  // null, and refused, if there is none
  std::string path_of(std::string_view name) const;

  const Json* json_;
  std::string path_;
  std::optional<Error>* fault_;
};

}  // namespace nmc::evidence
