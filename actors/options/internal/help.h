/// Lays out --help: names on the left, wrapped text on the right, headings between groups.
#pragma once

#include <string>
#include <vector>

namespace troupe::actors::internal {

struct HelpEntry {
  std::string group;
  std::string name;
  std::string text;
};

std::string FormatHelp(const std::vector<HelpEntry>& entries, int width);

}  // namespace troupe::actors::internal
