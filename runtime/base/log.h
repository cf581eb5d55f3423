/// Writes lines for people to stderr: time, level, rank; spdlog behind a header that costs nothing to include.
#pragma once

#include <string>

#include "absl/strings/str_cat.h"

namespace troupe {

enum class LogLevel { kDebug, kInfo, kWarning, kError };

/// Threads  thread-safe.
void Log(LogLevel level, const std::string& message);

/// Lines below `level` are dropped (default: kInfo, or TROUPE_LOG=debug|info|warning|error).
void SetLogLevel(LogLevel level);

template <typename... Parts>
void LogInfo(const Parts&... parts) {
  Log(LogLevel::kInfo, absl::StrCat(parts...));
}
template <typename... Parts>
void LogWarning(const Parts&... parts) {
  Log(LogLevel::kWarning, absl::StrCat(parts...));
}
template <typename... Parts>
void LogError(const Parts&... parts) {
  Log(LogLevel::kError, absl::StrCat(parts...));
}
template <typename... Parts>
void LogDebug(const Parts&... parts) {
  Log(LogLevel::kDebug, absl::StrCat(parts...));
}

}  // namespace troupe
