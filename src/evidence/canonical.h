// One text for equal JSON, whoever wrote it, to be digested: members sorted by the bytes of their names, no white
// space, whole numbers in decimal, other numbers with six decimals, strings escaped no more than JSON demands. A few
// lines in any language make the same text, so that a digest can be checked without this program; docs/formats.md has
// them.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "base/hash.h"
#include "base/json.h"

namespace nmc::evidence {

// Strings are valid UTF-8 and numbers finite, as whatever parse_json() gives is.
std::string canonical_json(const Json& value);

// SHA-256 of that, but of an object without its member `without`, which may hold the digest itself.
Digest canonical_digest(const Json& value, std::string_view without = "");

}  // namespace nmc::evidence
