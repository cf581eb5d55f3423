/// Writes durations, counts and sizes as people read them.
#pragma once

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace troupe::actors {

/// `0s`, `12s`, `3m 20s`, `1h 02m`, `2d 03h`; rounded down to what is shown.
std::string FormatElapsed(absl::Duration duration);

/// `950`, `4.32k`, `43.2k`, `4.32M`.
std::string FormatCount(double count);

/// `0.42 GiB`.
std::string FormatGib(double gib);

/// Columns that a terminal needs for UTF-8 text without wide or combining characters.
int DisplayWidth(absl::string_view text);

}  // namespace troupe::actors
