/// Turns the lines of many ranks into one stream: each with the ranks that said it, what is said by several or twice folded.
#pragma once

#include <deque>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace troupe::runtime {

/// Lines of one rank keep their order. A line waits for at most `window` for other ranks to say the same.
///
/// Threads  one thread.
class LogMerger {
 public:
  LogMerger(int num_ranks, absl::Duration window) : num_ranks_(num_ranks), window_(window) {}

  void Add(int rank, std::string line, absl::Time now);
  /// Lines that need not wait any longer, as `[rank 0-3] text`.
  std::vector<std::string> Take(absl::Time now);
  /// All that is left.
  std::vector<std::string> TakeAll() { return Take(absl::InfiniteFuture()); }
  /// When Take has something to give, if nothing is added.
  absl::Time NextDeadline() const;

 private:
  struct Entry {
    std::string text;
    absl::Time since;
    std::map<int, int> times;  ///< by rank
    bool everyone = false;
  };

  std::string Format(const Entry& entry) const;

  const int num_ranks_;
  const absl::Duration window_;
  std::deque<Entry> entries_;
  size_t taken_ = 0;                 ///< entries that have gone, so that places stay valid
  std::map<int, size_t> last_place_; ///< of each rank's newest line
};

/// `0-3,5` for {0, 1, 2, 3, 5}.
std::string FormatRanks(const std::vector<int>& sorted_ranks);

/// The line without the time of day at its front, by which lines of different ranks are compared.
absl::string_view WithoutTime(absl::string_view line);

}  // namespace troupe::runtime
