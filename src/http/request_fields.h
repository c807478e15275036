// What all bodies have in common.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "engine/request.h"
#include "http/status.h"

namespace nmc::http {

// A body as the object that it has to be.
ApiResult<Json> parse_body(std::string_view body);

// The index among `models`, names of which the first is meant where the field is absent. One that isn't there: 404.
ApiResult<std::size_t> parse_model_field(const JsonFields& fields, const std::vector<std::string>& models);

// `array` as token ids. `path` names it in errors, whose param is `param`.
ApiResult<std::vector<engine::TokenId>> parse_token_ids(const Json& array, std::string_view path,
                                                        std::string_view param);

}  // namespace nmc::http
