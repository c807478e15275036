// One log for people, on standard error: `log_info("loaded {} tensors", n)`. Results never go through it.
#pragma once

#include <fmt/core.h>

#include <string>
#include <string_view>
#include <utility>

namespace nmc {

enum class LogLevel { kDebug, kInfo, kWarning, kError, kOff };

// Process-wide threshold; kWarning until set (mains set it from flags). Thread-safe.
void set_log_level(LogLevel level);
bool log_enabled(LogLevel level);
void log_line(LogLevel level, std::string_view text);

#define NMC_DEFINE_LOG(name, level)                                                            \
  template <typename... Args>                                                                  \
  void name(fmt::format_string<Args...> format, Args&&... args) {                              \
    if (log_enabled(level)) log_line(level, fmt::format(format, std::forward<Args>(args)...)); \
  }
NMC_DEFINE_LOG(log_debug, LogLevel::kDebug)
NMC_DEFINE_LOG(log_info, LogLevel::kInfo)
NMC_DEFINE_LOG(log_warning, LogLevel::kWarning)
NMC_DEFINE_LOG(log_error, LogLevel::kError)
#undef NMC_DEFINE_LOG

}  // namespace nmc
