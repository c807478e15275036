#include "evidence/canonical.h"

#include <fmt/core.h>

#include <map>

namespace nmc::evidence {
namespace {

void append(std::string& text, const Json& value, std::string_view without) {
  if (value.is_object()) {
    std::map<std::string_view, const Json*> sorted;
    for (const auto& [name, member] : value.items()) {
      if (without.empty() || name != without) sorted.emplace(name, &member);
    }
    char before = '{';
    if (sorted.empty()) text += before;
    for (const auto& [name, member] : sorted) {
      text += std::exchange(before, ',');
      text += dump_json(Json(name));
      text += ':';
      append(text, *member, "");
    }
    text += '}';
  } else if (value.is_array()) {
    text += '[';
    for (std::size_t i = 0; i < value.size(); ++i) {
      if (i > 0) text += ',';
      append(text, value[i], "");
    }
    text += ']';
  } else if (value.is_number_float()) {
    text += fmt::format("{:.6f}", value.get<double>());
  } else {
    text += dump_json(value);
  }
}

}  // namespace

std::string canonical_json(const Json& value) {
  std::string text;
  append(text, value, "");
  return text;
}

Digest canonical_digest(const Json& value, std::string_view without) {
  std::string text;
  append(text, value, without);
  return sha256(text);
}

}  // namespace nmc::evidence
