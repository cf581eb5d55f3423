/// Finds what somebody probably meant to type.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace troupe::actors {

/// Insertions, deletions, replacements and swaps of neighbours that turn `a` into `b`.
int EditDistance(absl::string_view a, absl::string_view b);

/// The candidate with the smallest distance, the first of several; empty when there are none.
std::string Nearest(absl::string_view word, const std::vector<std::string>& candidates);

}  // namespace troupe::actors
