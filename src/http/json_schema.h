// JSON Schema (2020-12, as OpenAPI 3.1 has it), built rather than written, so that bounds are the constants of the
// parsers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace nmc::http::schema {

Json boolean();
Json integer(std::int64_t low, std::optional<std::uint64_t> high = {});
Json number(double low, double high);  // both included
Json text(std::optional<std::size_t> characters_max = {});
Json list(Json items, std::size_t items_min = 0, std::optional<std::size_t> items_max = {});
Json map(Json values, std::optional<std::size_t> members_max = {});  // an object with any names
Json constant(Json value);
Json one_of(std::vector<std::string> values);
Json any_of(std::vector<Json> choices);
Json reference(std::string_view component);  // of #/components/schemas
Json anything();

Json or_null(Json schema);
Json about(Json schema, std::string_view description);

// Members in the order in which they are added.
class Object {
 public:
  Object& required(std::string_view name, Json schema, std::string_view description = "");
  // May be absent or null, which mean `absent` (null: nothing in particular).
  Object& optional(std::string_view name, Json schema, Json absent, std::string_view description = "");
  Json open() const;    // further members are allowed
  Json closed() const;  // they aren't

 private:
  Json done(bool open) const;
  std::vector<std::pair<std::string, Json>> properties_;
  std::vector<std::string> required_;
};

}  // namespace nmc::http::schema
