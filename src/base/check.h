// Checks for two parties. NMC_REQUIRE blames the caller of a function, NMC_ASSERT blames ourselves; both are on in
// release and stop the process with the values involved. Anything that can happen in operation (files, peers, memory
// pressure) is a Result instead; system calls go through base/syscall.h.
#pragma once

#include <fmt/core.h>

#include <string>

namespace nmc {

[[noreturn]] void check_failed(const char* kind, const char* expression, const char* file, int line,
                               const std::string& detail);

}  // namespace nmc

#define NMC_CHECK_IMPL(kind, condition, ...)                                                       \
  do {                                                                                             \
    if (!(condition)) [[unlikely]]                                                                 \
      ::nmc::check_failed(kind, #condition, __FILE__, __LINE__, ::nmc::check_detail(__VA_ARGS__)); \
  } while (false)

// NMC_REQUIRE(rows > 0, "rows={}", rows);
#define NMC_REQUIRE(condition, ...) NMC_CHECK_IMPL("requirement", condition, __VA_ARGS__)
#define NMC_ASSERT(condition, ...) NMC_CHECK_IMPL("assertion", condition, __VA_ARGS__)

namespace nmc {

inline std::string check_detail() { return {}; }
template <typename... Args>
std::string check_detail(fmt::format_string<Args...> format, Args&&... args) {
  return fmt::format(format, std::forward<Args>(args)...);
}

}  // namespace nmc
