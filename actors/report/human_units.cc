#include "actors/report/human_units.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace troupe::actors {

std::string FormatElapsed(absl::Duration duration) {
  if (duration == absl::InfiniteDuration()) return "?";
  const int64_t seconds = std::max<int64_t>(0, absl::ToInt64Seconds(duration));
  const int64_t minutes = seconds / 60;
  const int64_t hours = minutes / 60;
  if (minutes == 0) return absl::StrCat(seconds, "s");
  if (hours == 0) return absl::StrFormat("%dm %02ds", minutes, seconds % 60);
  if (hours < 24) return absl::StrFormat("%dh %02dm", hours, minutes % 60);
  return absl::StrFormat("%dd %02dh", hours / 24, hours % 24);
}

std::string FormatCount(double count) {
  if (!std::isfinite(count)) return "?";
  constexpr const char* kUnits[] = {"", "k", "M", "G", "T"};
  size_t unit = 0;
  // 999.5 would be shown as 1000.
  while (std::abs(count) >= 999.5 && unit + 1 < std::size(kUnits)) {
    count /= 1000;
    ++unit;
  }
  if (unit == 0) return absl::StrFormat("%.0f", count);
  const double size = std::abs(count);
  return absl::StrFormat("%.*f%s", size < 9.995 ? 2 : size < 99.95 ? 1 : 0, count, kUnits[unit]);
}

std::string FormatGib(double gib) { return absl::StrFormat("%.2f GiB", gib); }

int DisplayWidth(absl::string_view text) {
  return static_cast<int>(std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xc0) != 0x80; }));
}

}  // namespace troupe::actors
