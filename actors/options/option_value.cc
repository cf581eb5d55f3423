#include "actors/options/option_value.h"

#include <charconv>
#include <cmath>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace troupe::actors {

absl::StatusOr<int64_t> ParseWholeNumber(absl::string_view text) {
  int64_t value = 0;
  if (absl::SimpleAtoi(text, &value)) return value;
  return absl::InvalidArgumentError(absl::StrCat("\"", text, "\" is not a whole number"));
}

absl::StatusOr<double> ParseNumber(absl::string_view text) {
  double value = 0;
  if (absl::SimpleAtod(text, &value) && std::isfinite(value)) return value;
  return absl::InvalidArgumentError(absl::StrCat("\"", text, "\" is not a number"));
}

bool IsBool(absl::string_view text, bool* value) {
  *value = absl::EqualsIgnoreCase(text, "true");
  return *value || absl::EqualsIgnoreCase(text, "false");
}

std::string FormatNumber(double value) {
  char text[32];
  const std::to_chars_result end = std::to_chars(text, text + sizeof(text), value);
  return std::string(text, end.ptr);
}

}  // namespace troupe::actors
