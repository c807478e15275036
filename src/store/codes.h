// What a call of the store's API came to, as one number: 0 or a count for success, else one of these codes. Numbers and
// names are those that callers of Mooncake's store judge by (kvcache-ai/Mooncake, mooncake-store/include/types.h), so
// that engines written for it need no other table.
#pragma once

#include <cstdint>

#include "base/result.h"

namespace nmc::store {

using Outcome = std::int64_t;

enum class StoreCode : std::int32_t {
  kOk = 0,
  kInternalError = -1,
  kBufferOverflow = -10,
  kSegmentNotFound = -101,
  kSegmentAlreadyExists = -102,
  kClientNotFound = -103,
  kNoAvailableHandle = -200,  // no room, and nothing that may go
  kInvalidVersion = -300,
  kInvalidKey = -400,
  kWriteFail = -500,
  kInvalidParams = -600,
  kIllegalClient = -601,  // a reservation that is no longer the caller's
  kInvalidWrite = -700,
  kInvalidRead = -701,
  kInvalidReplica = -702,
  kReplicaIsNotReady = -703,
  kObjectNotFound = -704,
  kObjectAlreadyExists = -705,
  kObjectHasLease = -706,
  kLeaseExpired = -707,
  kTransferFail = -800,
  kChecksumMismatch = -801,
  kRpcFail = -900,     // the master can't be reached
  kRpcTimeout = -901,  // the master didn't answer in time
  kNotSupported = -1012,
};

constexpr Outcome outcome_of(StoreCode code) { return static_cast<Outcome>(code); }

// "OBJECT_NOT_FOUND"; "UNKNOWN" for a number without a name here.
const char* store_code_name(Outcome outcome);
// The code for an error of ours: what the caller could have done better decides.
StoreCode store_code_for(const Error& error);

}  // namespace nmc::store
