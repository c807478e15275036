#include "base/result.h"

namespace nmc {

const char* error_code_name(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument: return "invalid_argument";
    case ErrorCode::kNotFound: return "not_found";
    case ErrorCode::kAlreadyExists: return "already_exists";
    case ErrorCode::kCorrupt: return "corrupt";
    case ErrorCode::kVersionMismatch: return "version_mismatch";
    case ErrorCode::kResourceExhausted: return "resource_exhausted";
    case ErrorCode::kUnavailable: return "unavailable";
    case ErrorCode::kDeadlineExceeded: return "deadline_exceeded";
    case ErrorCode::kCancelled: return "cancelled";
    case ErrorCode::kPermissionDenied: return "permission_denied";
    case ErrorCode::kIo: return "io";
    case ErrorCode::kUnsupported: return "unsupported";
    case ErrorCode::kInternal: return "internal";
  }
  return "unknown";
}

Error Error::with_context(std::string_view context) && {
  message = fmt::format("{}: {}", context, message);
  return std::move(*this);
}

std::string Error::to_string() const { return fmt::format("{}: {}", error_code_name(code), message); }

}  // namespace nmc
