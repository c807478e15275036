#include "http/json_schema.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <utility>

namespace nmc::http::schema {
namespace {

Json typed(const char* type) {
  Json json;
  json["type"] = type;
  return json;
}

}  // namespace

Json boolean() { return typed("boolean"); }

Json integer(std::int64_t low, std::optional<std::uint64_t> high) {
  Json json = typed("integer");
  json["minimum"] = low;
  if (high) json["maximum"] = *high;
  return json;
}

Json number(double low, double high) {
  Json json = typed("number");
  json["minimum"] = low;
  json["maximum"] = high;
  return json;
}

Json text(std::optional<std::size_t> characters_max) {
  Json json = typed("string");
  if (characters_max) json["maxLength"] = *characters_max;
  return json;
}

Json list(Json items, std::size_t items_min, std::optional<std::size_t> items_max) {
  Json json = typed("array");
  json["items"] = std::move(items);
  if (items_min > 0) json["minItems"] = items_min;
  if (items_max) json["maxItems"] = *items_max;
  return json;
}

Json map(Json values, std::optional<std::size_t> members_max) {
  Json json = typed("object");
  json["additionalProperties"] = std::move(values);
  if (members_max) json["maxProperties"] = *members_max;
  return json;
}

Json constant(Json value) {
  Json json;
  json["const"] = std::move(value);
  return json;
}

Json one_of(std::vector<std::string> values) {
  Json json = typed("string");
  json["enum"] = std::move(values);
  return json;
}

Json any_of(std::vector<Json> choices) {
  Json json;
  json["anyOf"] = std::move(choices);
  return json;
}

Json reference(std::string_view component) {
  Json json;
  json["$ref"] = fmt::format("#/components/schemas/{}", component);
  return json;
}

Json anything() { return Json::object(); }

Json or_null(Json schema) {
  if (schema.empty()) return schema;  // anything
  const auto type = schema.find("type");
  if (type != schema.end() && *type == "null") return schema;
  if (type != schema.end() && type->is_string()) {
    *type = Json::array({*type, "null"});
    if (const auto values = schema.find("enum"); values != schema.end()) values->push_back(nullptr);
    return schema;
  }
  if (const auto choices = schema.find("anyOf"); choices != schema.end()) {
    choices->push_back(typed("null"));
    return schema;
  }
  return any_of({std::move(schema), typed("null")});
}

Json about(Json schema, std::string_view description) {
  if (!description.empty()) schema["description"] = description;
  return schema;
}

Object& Object::required(std::string_view name, Json schema, std::string_view description) {
  required_.emplace_back(name);
  properties_.emplace_back(name, about(std::move(schema), description));
  return *this;
}

Object& Object::optional(std::string_view name, Json schema, Json absent, std::string_view description) {
  Json property = about(or_null(std::move(schema)), description);
  property["default"] = std::move(absent);
  properties_.emplace_back(name, std::move(property));
  return *this;
}

Json Object::done(bool open) const {
  Json json = typed("object");
  json["properties"] = Json::object();
  for (const auto& [name, property] : properties_) json["properties"][name] = property;
  if (!required_.empty()) json["required"] = required_;
  json["additionalProperties"] = open;
  return json;
}

Json Object::open() const { return done(true); }
Json Object::closed() const { return done(false); }

}  // namespace nmc::http::schema
