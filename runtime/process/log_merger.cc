#include "runtime/process/log_merger.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

namespace troupe::runtime {

void LogMerger::Add(int rank, std::string line, absl::Time now) {
  const auto last = last_place_.find(rank);
  // Not before the rank's own last line, or its order would change.
  const size_t first = last == last_place_.end() ? taken_ : std::max(last->second, taken_);
  for (size_t place = first; place < taken_ + entries_.size(); ++place) {
    Entry& entry = entries_[place - taken_];
    if (WithoutTime(entry.text) != WithoutTime(line)) continue;
    ++entry.times[rank];
    entry.everyone = num_ranks_ > 1 && static_cast<int>(entry.times.size()) == num_ranks_;
    last_place_[rank] = place;
    return;
  }
  last_place_[rank] = taken_ + entries_.size();
  entries_.push_back({std::move(line), now, {{rank, 1}}, false});
}

std::vector<std::string> LogMerger::Take(absl::Time now) {
  std::vector<std::string> lines;
  // A flood of lines is not searched for repeats for ever.
  constexpr size_t kMostEntries = 256;
  while (!entries_.empty() && (entries_.front().everyone || entries_.size() > kMostEntries ||
                               entries_.front().since + window_ <= now)) {
    lines.push_back(Format(entries_.front()));
    entries_.pop_front();
    ++taken_;
  }
  return lines;
}

absl::Time LogMerger::NextDeadline() const {
  return entries_.empty() ? absl::InfiniteFuture() : entries_.front().since + window_;
}

std::string LogMerger::Format(const Entry& entry) const {
  std::vector<int> ranks;
  int most = 0;
  for (const auto& [rank, times] : entry.times) {
    ranks.push_back(rank);
    most = std::max(most, times);
  }
  return absl::StrCat("[rank ", FormatRanks(ranks), "] ", entry.text, most > 1 ? absl::StrCat(" (", most, " times)") : "");
}

std::string FormatRanks(const std::vector<int>& sorted_ranks) {
  std::string out;
  for (size_t i = 0; i < sorted_ranks.size();) {
    size_t end = i + 1;
    while (end < sorted_ranks.size() && sorted_ranks[end] == sorted_ranks[end - 1] + 1) ++end;
    absl::StrAppend(&out, out.empty() ? "" : ",", sorted_ranks[i]);
    if (end - i > 1) absl::StrAppend(&out, "-", sorted_ranks[end - 1]);
    i = end;
  }
  return out;
}

absl::string_view WithoutTime(absl::string_view line) {
  constexpr absl::string_view kPattern = "dd:dd:dd.ddd ";
  if (line.size() < kPattern.size()) return line;
  for (size_t i = 0; i < kPattern.size(); ++i) {
    const bool fits = kPattern[i] == 'd' ? absl::ascii_isdigit(static_cast<unsigned char>(line[i])) : line[i] == kPattern[i];
    if (!fits) return line;
  }
  return line.substr(kPattern.size());
}

}  // namespace troupe::runtime
