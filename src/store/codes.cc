#include "store/codes.h"

namespace nmc::store {

const char* store_code_name(Outcome outcome) {
  switch (static_cast<StoreCode>(outcome)) {
    case StoreCode::kOk: return "OK";
    case StoreCode::kInternalError: return "INTERNAL_ERROR";
    case StoreCode::kBufferOverflow: return "BUFFER_OVERFLOW";
    case StoreCode::kSegmentNotFound: return "SEGMENT_NOT_FOUND";
    case StoreCode::kSegmentAlreadyExists: return "SEGMENT_ALREADY_EXISTS";
    case StoreCode::kClientNotFound: return "CLIENT_NOT_FOUND";
    case StoreCode::kNoAvailableHandle: return "NO_AVAILABLE_HANDLE";
    case StoreCode::kInvalidVersion: return "INVALID_VERSION";
    case StoreCode::kInvalidKey: return "INVALID_KEY";
    case StoreCode::kWriteFail: return "WRITE_FAIL";
    case StoreCode::kInvalidParams: return "INVALID_PARAMS";
    case StoreCode::kIllegalClient: return "ILLEGAL_CLIENT";
    case StoreCode::kInvalidWrite: return "INVALID_WRITE";
    case StoreCode::kInvalidRead: return "INVALID_READ";
    case StoreCode::kInvalidReplica: return "INVALID_REPLICA";
    case StoreCode::kReplicaIsNotReady: return "REPLICA_IS_NOT_READY";
    case StoreCode::kObjectNotFound: return "OBJECT_NOT_FOUND";
    case StoreCode::kObjectAlreadyExists: return "OBJECT_ALREADY_EXISTS";
    case StoreCode::kObjectHasLease: return "OBJECT_HAS_LEASE";
    case StoreCode::kLeaseExpired: return "LEASE_EXPIRED";
    case StoreCode::kTransferFail: return "TRANSFER_FAIL";
    case StoreCode::kChecksumMismatch: return "CHECKSUM_MISMATCH";
    case StoreCode::kRpcFail: return "RPC_FAIL";
    case StoreCode::kRpcTimeout: return "RPC_TIMEOUT";
    case StoreCode::kNotSupported: return "NOT_SUPPORTED";
  }
  return "UNKNOWN";
}

StoreCode store_code_for(const Error& error) {
  switch (error.code) {
    case ErrorCode::kInvalidArgument: return StoreCode::kInvalidParams;
    case ErrorCode::kNotFound: return StoreCode::kObjectNotFound;
    case ErrorCode::kAlreadyExists: return StoreCode::kObjectAlreadyExists;
    case ErrorCode::kCorrupt: return StoreCode::kChecksumMismatch;
    case ErrorCode::kVersionMismatch: return StoreCode::kInvalidVersion;
    case ErrorCode::kResourceExhausted: return StoreCode::kNoAvailableHandle;
    case ErrorCode::kUnavailable: return StoreCode::kRpcFail;
    case ErrorCode::kDeadlineExceeded: return StoreCode::kRpcTimeout;
    case ErrorCode::kPermissionDenied: return StoreCode::kIllegalClient;
    case ErrorCode::kUnsupported: return StoreCode::kNotSupported;
    case ErrorCode::kIo: return StoreCode::kTransferFail;
    case ErrorCode::kCancelled:
    case ErrorCode::kInternal: return StoreCode::kInternalError;
  }
  return StoreCode::kInternalError;
}

}  // namespace nmc::store
