// The filters and tests of Jinja that chat templates use, by name.
#pragma once

#include <span>
#include <string_view>

#include "base/result.h"
#include "model/jinja_value.h"

namespace nmc::model::jinja {

using Filter = Result<Value> (*)(const Value& input, const Arguments& arguments, Budget& budget);
using Test = Result<bool> (*)(const Value& input, const Arguments& arguments, Budget& budget);

struct FilterEntry {
  std::string_view name;
  Filter apply;
};

// nullptr: there is none of that name.
Filter find_filter(std::string_view name);
Test find_test(std::string_view name);

// Those that work on lists; find_filter() looks here too.
std::span<const FilterEntry> list_filters();

}  // namespace nmc::model::jinja
