/// Repairs and normalises UTF-8.
#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace troupe::engine {

/// Every maximal invalid prefix becomes one U+FFFD, as in the Unicode standard and Rust's from_utf8_lossy.
std::string ReplaceInvalidUtf8(absl::string_view bytes);
/// Canonical composition.  Checks  valid UTF-8
std::string Nfc(const std::string& text);
/// Appends one code point.
void AppendUtf8(uint32_t code_point, std::string* text);

}  // namespace troupe::engine
