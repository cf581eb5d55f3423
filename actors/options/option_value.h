/// Reads and writes the value of one option as text.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace troupe::actors {

/// Errors  INVALID_ARGUMENT: `"ten" is not a whole number`.
absl::StatusOr<int64_t> ParseWholeNumber(absl::string_view text);
/// Errors  INVALID_ARGUMENT: `"ten" is not a number`; also for nan and inf.
absl::StatusOr<double> ParseNumber(absl::string_view text);
/// `true` or `false`, in any case.
bool IsBool(absl::string_view text, bool* value);

/// The shortest text that reads back as the same number.
std::string FormatNumber(double value);

}  // namespace troupe::actors
