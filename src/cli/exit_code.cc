#include "cli/exit_code.h"

namespace nmc::cli {

int exit_code_of(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument:
    case ErrorCode::kNotFound:
    case ErrorCode::kCorrupt:
    case ErrorCode::kVersionMismatch:
    case ErrorCode::kUnsupported:
    case ErrorCode::kPermissionDenied: return kExitWrongInput;  // what was named can't be read or used
    case ErrorCode::kAlreadyExists:
    case ErrorCode::kResourceExhausted:
    case ErrorCode::kUnavailable:
    case ErrorCode::kDeadlineExceeded:
    case ErrorCode::kIo:
    case ErrorCode::kInternal: return kExitNotDone;
    case ErrorCode::kCancelled: return kExitInterrupted;
  }
  return kExitNotDone;
}

std::string_view exit_code_meaning(int exit_code) {
  switch (exit_code) {
    case kExitDone: return "done";
    case kExitJudgedFailed: return "judged, and failed";
    case kExitWrongInput: return "wrong usage or unreadable input; one line on standard error says what was expected";
    case kExitNotDone: return "the work could not be done";
    case kExitInsufficientEvidence: return "too little evidence for a judgement";
    case kExitInterrupted: return "interrupted";
    default: return "";
  }
}

}  // namespace nmc::cli
