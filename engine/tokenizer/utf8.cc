#include "engine/tokenizer/utf8.h"

#include <utf8proc.h>

#include <cstdint>
#include <cstdlib>

namespace troupe::engine {
namespace {

bool IsAscii(absl::string_view text) {
  for (char c : text) {
    if (static_cast<uint8_t>(c) >= 0x80) return false;
  }
  return true;
}

/// How many bytes at `at` form a character (valid), or the start of one that breaks off.
struct Scan {
  size_t length;
  bool valid;
};

Scan ScanAt(absl::string_view s, size_t at) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(s[i]); };
  const uint8_t first = byte(at);
  if (first < 0x80) return {1, true};
  uint8_t low = 0x80, high = 0xbf;
  size_t length = 0;
  if (first >= 0xc2 && first <= 0xdf) {
    length = 2;
  } else if (first >= 0xe0 && first <= 0xef) {
    length = 3;
    if (first == 0xe0) low = 0xa0;
    if (first == 0xed) high = 0x9f;
  } else if (first >= 0xf0 && first <= 0xf4) {
    length = 4;
    if (first == 0xf0) low = 0x90;
    if (first == 0xf4) high = 0x8f;
  } else {
    return {1, false};
  }
  for (size_t i = 1; i < length; ++i) {
    if (at + i >= s.size() || byte(at + i) < low || byte(at + i) > high) return {i, false};
    low = 0x80;
    high = 0xbf;
  }
  return {length, true};
}

}  // namespace

void AppendUtf8(uint32_t code_point, std::string* text) {
  utf8proc_uint8_t bytes[4];
  const utf8proc_ssize_t n = utf8proc_encode_char(static_cast<utf8proc_int32_t>(code_point), bytes);
  text->append(reinterpret_cast<const char*>(bytes), static_cast<size_t>(n));
}

std::string ReplaceInvalidUtf8(absl::string_view bytes) {
  std::string text;
  text.reserve(bytes.size());
  for (size_t at = 0; at < bytes.size();) {
    const Scan scan = ScanAt(bytes, at);
    if (scan.valid) {
      text.append(bytes.data() + at, scan.length);
    } else {
      text += "\xEF\xBF\xBD";
    }
    at += scan.length;
  }
  return text;
}

std::string Nfc(const std::string& text) {
  if (IsAscii(text)) return text;
  utf8proc_uint8_t* composed = nullptr;
  const utf8proc_ssize_t n = utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()), static_cast<utf8proc_ssize_t>(text.size()),
                                          &composed, static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
  if (n < 0) return text;
  std::string result(reinterpret_cast<const char*>(composed), static_cast<size_t>(n));
  std::free(composed);
  return result;
}

}  // namespace troupe::engine
