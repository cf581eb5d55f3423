#include "actors/options/internal/help.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace troupe::actors::internal {

namespace {

constexpr size_t kIndent = 2;
/// Names longer than this have a line of their own.
constexpr size_t kTextColumn = 38;
constexpr size_t kLeastTextWidth = 30;

}  // namespace

std::string FormatHelp(const std::vector<HelpEntry>& entries, int width) {
  const size_t text_width =
      std::max(static_cast<size_t>(std::max(width, 0)), kTextColumn + kLeastTextWidth) - kTextColumn;
  std::string out;
  std::string group;
  for (const HelpEntry& entry : entries) {
    if (&entry == &entries.front() || entry.group != group) {
      absl::StrAppend(&out, "\n", entry.group, entry.group.empty() ? "" : "\n");
      group = entry.group;
    }
    std::string line = std::string(kIndent, ' ') + entry.name;
    if (line.size() + 2 > kTextColumn) {
      absl::StrAppend(&out, line, "\n");
      line.clear();
    }
    line.resize(kTextColumn, ' ');
    size_t used = 0;
    for (const absl::string_view word : absl::StrSplit(entry.text, ' ', absl::SkipEmpty())) {
      if (used > 0 && used + 1 + word.size() > text_width) {
        absl::StrAppend(&out, line, "\n");
        line.assign(kTextColumn, ' ');
        used = 0;
      }
      absl::StrAppend(&line, used > 0 ? " " : "", word);
      used += word.size() + (used > 0 ? 1 : 0);
    }
    absl::StrAppend(&out, line, "\n");
  }
  return out;
}

}  // namespace troupe::actors::internal
