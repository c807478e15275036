// Value-or-error results. Every fallible function of this project returns Result<T>; exceptions don't cross layers.
// A miss is not an error (it is an empty optional or a count); a bad file, flag, frame or peer is one.
#pragma once

#include <fmt/core.h>

#include <string>
#include <tl/expected.hpp>
#include <utility>

namespace nmc {

// A small closed set. The edges map a code to an HTTP status, a process exit code and a Python error in one table each
// (http/status.h, cli/exit_code.h), so a new code is added only together with those rows.
enum class ErrorCode {
  kInvalidArgument,    // the caller's input is wrong: what, where, what was expected
  kNotFound,           // a named thing isn't there
  kAlreadyExists,      // a name is taken, a folder is in use by a live process
  kCorrupt,            // bytes that should be ours fail a check
  kVersionMismatch,    // right kind, other version, layout or namespace
  kResourceExhausted,  // memory, disk, queue or table is full
  kUnavailable,        // a peer or worker isn't there or died
  kDeadlineExceeded,   // time ran out
  kCancelled,          // the caller gave up
  kPermissionDenied,   // the OS refused
  kIo,                 // the OS failed in another way
  kUnsupported,        // well-formed, but not something this build does
  kInternal,           // a broken promise of ours that could be contained
};

// Lower-case name of the code, for messages and JSON ("invalid_argument").
const char* error_code_name(ErrorCode code);

struct Error {
  ErrorCode code = ErrorCode::kInternal;
  std::string message;  // one sentence a user can act on; no trailing full stop

  // The same error with `context: ` put in front, for the layer that knows which file or peer it was.
  Error with_context(std::string_view context) &&;
  std::string to_string() const;  // "code: message"
};

template <typename T>
class [[nodiscard]] Result : public tl::expected<T, Error> {
 public:
  using tl::expected<T, Error>::expected;
};

template <>
class [[nodiscard]] Result<void> : public tl::expected<void, Error> {
 public:
  using tl::expected<void, Error>::expected;
};

using Failure = tl::unexpected<Error>;

template <typename... Args>
Failure failure(ErrorCode code, fmt::format_string<Args...> format, Args&&... args) {
  return Failure(Error{code, fmt::format(format, std::forward<Args>(args)...)});
}

#define NMC_DEFINE_FAILURE(name, code)                                    \
  template <typename... Args>                                             \
  Failure name(fmt::format_string<Args...> format, Args&&... args) {      \
    return failure(ErrorCode::code, format, std::forward<Args>(args)...); \
  }
NMC_DEFINE_FAILURE(invalid_argument, kInvalidArgument)
NMC_DEFINE_FAILURE(not_found, kNotFound)
NMC_DEFINE_FAILURE(already_exists, kAlreadyExists)
NMC_DEFINE_FAILURE(corrupt, kCorrupt)
NMC_DEFINE_FAILURE(version_mismatch, kVersionMismatch)
NMC_DEFINE_FAILURE(resource_exhausted, kResourceExhausted)
NMC_DEFINE_FAILURE(unavailable, kUnavailable)
NMC_DEFINE_FAILURE(deadline_exceeded, kDeadlineExceeded)
NMC_DEFINE_FAILURE(cancelled, kCancelled)
NMC_DEFINE_FAILURE(permission_denied, kPermissionDenied)
NMC_DEFINE_FAILURE(unsupported, kUnsupported)
NMC_DEFINE_FAILURE(internal_error, kInternal)
#undef NMC_DEFINE_FAILURE

}  // namespace nmc

#define NMC_CONCAT_INNER(a, b) a##b
#define NMC_CONCAT(a, b) NMC_CONCAT_INNER(a, b)

// NMC_ASSIGN_OR_RETURN(auto file, open_file(path));
#define NMC_ASSIGN_OR_RETURN(declaration, expression) \
  NMC_ASSIGN_OR_RETURN_IMPL(NMC_CONCAT(nmc_result_, __LINE__), declaration, expression)
#define NMC_ASSIGN_OR_RETURN_IMPL(result, declaration, expression) \
  auto result = (expression);                                      \
  if (!result) return ::nmc::Failure(std::move(result).error());   \
  declaration = std::move(*result)

// NMC_RETURN_IF_ERROR(file.sync());
#define NMC_RETURN_IF_ERROR(expression)                                    \
  do {                                                                     \
    auto nmc_status = (expression);                                        \
    if (!nmc_status) return ::nmc::Failure(std::move(nmc_status).error()); \
  } while (false)
