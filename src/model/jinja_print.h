// Values as text: Python's str() and repr(), and json.dumps().
#pragma once

#include <optional>
#include <string>

#include "base/result.h"
#include "model/jinja_value.h"

namespace nmc::model::jinja {

// As repr() of a float: the shortest digits that read back as the same number, "1.0", "1e+16", "inf", "nan".
std::string float_text(double value);

// As str(). Fails for what prints as nothing sensible: functions, iterators, namespaces, loops.
Result<Text> to_text(const Value& value, Budget& budget);

struct JsonFormat {
  std::optional<Text> indent;  // of one level; none: everything in one line
  Text item_separator{", "};
  Text key_separator{": "};
  bool ensure_ascii = false;
  bool sort_keys = false;
};
// As json.dumps(). Fails for what JSON doesn't have, an undefined value above all.
Result<Text> to_json(const Value& value, const JsonFormat& format, Budget& budget);

}  // namespace nmc::model::jinja
