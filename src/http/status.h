// Errors as the API shows them: an HTTP status and OpenAI's error object. The one place that maps error codes to
// statuses.
#pragma once

#include <string>
#include <tl/expected.hpp>

#include "base/result.h"
#include "net/http.h"

namespace nmc::http {

struct ApiError {
  int status = 500;
  std::string message;  // valid UTF-8 once rendered, whatever it holds
  std::string param;    // the request's field that is wrong; "": none in particular
};

template <typename T>
using ApiResult = tl::expected<T, ApiError>;
using ApiFailure = tl::unexpected<ApiError>;

int http_status(ErrorCode code);
const char* api_error_type(int status);  // "BadRequestError", ...

// A 400 that names a field.
ApiFailure bad_field(std::string_view param, std::string message);
ApiError to_api_error(Error error, std::string_view param = "");

// {"error": {"message", "type", "param", "code"}}
std::string error_json(const ApiError& error);
// With Retry-After where trying again later makes sense.
net::HttpResponse error_response(const ApiError& error);

}  // namespace nmc::http
