#include "http/status.h"

#include <nlohmann/json.hpp>

#include "base/json.h"

namespace nmc::http {

int http_status(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument: return 400;
    case ErrorCode::kNotFound: return 404;
    case ErrorCode::kAlreadyExists: return 409;
    case ErrorCode::kCorrupt: return 500;
    case ErrorCode::kVersionMismatch: return 500;
    case ErrorCode::kResourceExhausted: return 429;
    case ErrorCode::kUnavailable: return 503;
    case ErrorCode::kDeadlineExceeded: return 504;
    case ErrorCode::kCancelled: return 499;
    case ErrorCode::kPermissionDenied: return 403;
    case ErrorCode::kIo: return 500;
    // The client's to mend: a 5xx would make client libraries send the same again.
    case ErrorCode::kUnsupported: return 400;
    case ErrorCode::kInternal: return 500;
  }
  return 500;
}

const char* api_error_type(int status) {
  switch (status) {
    case 401: return "AuthenticationError";
    case 403: return "PermissionDeniedError";
    case 404: return "NotFoundError";
    case 405: return "MethodNotAllowedError";
    case 408: return "RequestTimeoutError";
    case 409: return "ConflictError";
    case 413: return "PayloadTooLargeError";
    case 429: return "RateLimitError";
    case 499: return "ClientClosedRequestError";
    case 503: return "ServiceUnavailableError";
    case 504: return "GatewayTimeoutError";
    default: return status >= 500 ? "InternalServerError" : "BadRequestError";
  }
}

ApiFailure bad_field(std::string_view param, std::string message) {
  return ApiFailure(ApiError{400, fmt::format("`{}`: {}", param, message), std::string(param)});
}

ApiError to_api_error(Error error, std::string_view param) {
  return {http_status(error.code), std::move(error.message), std::string(param)};
}

std::string error_json(const ApiError& error) {
  Json inner;
  inner["message"] = error.message;
  inner["type"] = api_error_type(error.status);
  inner["param"] = error.param.empty() ? Json(nullptr) : Json(error.param);
  inner["code"] = error.status;
  Json outer;
  outer["error"] = std::move(inner);
  return dump_json(outer);
}

net::HttpResponse error_response(const ApiError& error) {
  net::HttpResponse response{.status = error.status, .body = error_json(error)};
  if (error.status == 401) response.headers.push_back({"WWW-Authenticate", "Bearer"});
  if (error.status == 429 || error.status == 503) response.headers.push_back({"Retry-After", "1"});
  return response;
}

}  // namespace nmc::http
