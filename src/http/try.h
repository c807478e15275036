// Passing an API error on, as NMC_RETURN_IF_ERROR does for Result.
#pragma once

#include <string_view>
#include <utility>

#include "base/result.h"
#include "http/status.h"

// Returns the error of an ApiResult<void> from the function around it.
#define NMC_TRY(expression)                                                       \
  do {                                                                            \
    auto nmc_tried = (expression);                                                \
    if (!nmc_tried) return ::nmc::http::ApiFailure(std::move(nmc_tried).error()); \
  } while (false)

namespace nmc::http {

// The value of a typed field into `out`; JsonFields' message names the field already.
template <typename T, typename Out>
ApiResult<void> take(Result<T> value, std::string_view param, Out& out) {
  if (!value) return ApiFailure(to_api_error(std::move(value).error(), param));
  out = static_cast<Out>(*std::move(value));
  return {};
}

}  // namespace nmc::http
