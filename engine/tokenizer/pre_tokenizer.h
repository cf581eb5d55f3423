/// Cuts text into the pieces that merges stay within.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace troupe::engine {

/// The patterns we know; each has a scanner of its own instead of a regular expression engine.
enum class SplitPattern { kGpt2, kLlama3, kQwen2 };

/// Empty for a pattern that is none of them.
std::optional<SplitPattern> RecognisePattern(const std::string& regex);
/// The text of the regular expression.
const char* PatternText(SplitPattern pattern);

/// The pieces of valid UTF-8, in order; together they are the text.
std::vector<absl::string_view> SplitText(absl::string_view text, SplitPattern pattern);

}  // namespace troupe::engine
