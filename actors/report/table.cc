#include "actors/report/table.h"

#include <algorithm>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "actors/report/human_units.h"
#include "runtime/base/check.h"

namespace troupe::actors {

namespace {

/// Or the dash that stands for none.
bool IsNumber(const std::string& cell) {
  double value = 0;
  return cell == "-" || absl::SimpleAtod(cell, &value);
}

std::string Padded(const std::string& cell, int width, bool right) {
  const std::string space(static_cast<size_t>(std::max(0, width - DisplayWidth(cell))), ' ');
  return right ? space + cell : cell + space;
}

std::string Repeat(const char* text, int times) {
  std::string out;
  for (int i = 0; i < times; ++i) out += text;
  return out;
}

}  // namespace

std::string FormatTable(const Table& table, bool unicode) {
  std::vector<int> widths;
  std::vector<bool> right;
  for (size_t c = 0; c < table.columns.size(); ++c) {
    int width = DisplayWidth(table.columns[c]);
    bool numbers = !table.rows.empty();
    for (const auto& row : table.rows) {
      TROUPE_CHECK_EQ(row.size(), table.columns.size()) << "in a row of table " << table.title;
      width = std::max(width, DisplayWidth(row[c]));
      numbers = numbers && IsNumber(row[c]);
    }
    widths.push_back(width);
    right.push_back(numbers);
  }
  const char* dash = unicode ? "─" : "-";
  const auto rule = [&](const char* left, const char* middle, const char* end) {
    std::string line = left;
    for (size_t c = 0; c < widths.size(); ++c) absl::StrAppend(&line, c > 0 ? middle : "", Repeat(dash, widths[c] + 2));
    return absl::StrCat(line, end, "\n");
  };
  const auto cells = [&](const std::vector<std::string>& row) {
    const char* bar = unicode ? "│" : "|";
    std::string line = bar;
    for (size_t c = 0; c < row.size(); ++c) absl::StrAppend(&line, " ", Padded(row[c], widths[c], right[c]), " ", bar);
    return line + "\n";
  };
  std::string out = table.title.empty() ? "" : table.title + "\n";
  out += unicode ? rule("┌", "┬", "┐") : rule("+", "+", "+");
  out += cells(table.columns);
  out += unicode ? rule("├", "┼", "┤") : rule("+", "+", "+");
  for (const auto& row : table.rows) out += cells(row);
  out += unicode ? rule("└", "┴", "┘") : rule("+", "+", "+");
  return out;
}

Table PlacementTable(const runtime::DeviceMesh& mesh, const std::vector<WorkerPlace>& workers) {
  Table table;
  table.title = absl::StrCat("mesh ", mesh.Describe());
  table.columns = {"rank", "role"};
  for (const auto& dim : mesh.dims()) table.columns.push_back(dim.name);
  for (const char* column : {"host", "pid", "threads"}) table.columns.push_back(column);
  for (const WorkerPlace& worker : workers) {
    std::vector<std::string> row = {absl::StrCat(worker.rank), worker.role};
    const bool inside = worker.rank >= 0 && worker.rank < mesh.size();
    for (const auto& dim : mesh.dims()) {
      row.push_back(inside ? absl::StrCat(mesh.coordinate(dim.name, worker.rank)) : "-");
    }
    row.push_back(worker.host);
    row.push_back(absl::StrCat(worker.pid));
    row.push_back(absl::StrCat(worker.threads));
    table.rows.push_back(std::move(row));
  }
  return table;
}

}  // namespace troupe::actors
