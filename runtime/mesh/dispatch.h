/// Which rows of a batch go to which rank of a mesh, and in which order results are put together again.
#pragma once

#include <cstddef>
#include <functional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/mesh/device_mesh.h"

namespace troupe::runtime {

/// How the rows of an argument are dealt to ranks.
enum class Dispatch {
  kAll,       ///< every rank gets every row
  kSlice,     ///< rank r of n gets the r-th slice
  kSliceDp,   ///< the ranks of data_rank d get the d-th slice
  kFunction,  ///< a function names the rows of each rank
};

/// How the results of ranks become one.
enum class Collect {
  kNone,     ///< one result a rank
  kFirst,    ///< that of rank 0
  kFlatten,  ///< rows in the order in which they were dispatched
  kMean,     ///< mean over one rank of each distinct slice, added in rank order
  kSum,      ///< sum over the same ranks
};

const char* DispatchName(Dispatch dispatch);
const char* CollectName(Collect collect);

/// Rows [begin, end).
struct RowRange {
  size_t begin = 0;
  size_t end = 0;
  size_t size() const { return end - begin; }
  friend bool operator==(const RowRange& a, const RowRange& b) { return a.begin == b.begin && a.end == b.end; }
};

/// Slice `index` of `rows` rows in `parts` slices whose sizes differ by at most one.
///
///   k, m = divmod(rows, parts); begin(i) = i k + min(i, m)
RowRange SplitRows(size_t rows, int parts, int index);

/// The rows that `rank` gets of a batch of `rows`.
///
/// Checks  `dispatch` is not kFunction.
RowRange RowsOf(const DeviceMesh& mesh, Dispatch dispatch, int rank, size_t rows);

/// The ranks whose results, one after another, are the whole: `flatten` concatenates them, `mean` and `sum` add them.
///
///   kAll -> {0}; kSlice, kFunction -> every rank; kSliceDp -> the lowest rank of each data_rank
std::vector<int> RepresentativeRanks(const DeviceMesh& mesh, Dispatch dispatch);

/// Names the rows of a rank, in the order in which it gets them.
using DispatchFunction = std::function<std::vector<size_t>(const DeviceMesh& mesh, int rank, size_t rows)>;

/// The rows of every rank.
///
/// Errors  INVALID_ARGUMENT naming rank and row when `function` is missing or names a row that is not there.
absl::StatusOr<std::vector<std::vector<size_t>>> DispatchRows(const DeviceMesh& mesh, Dispatch dispatch, size_t rows,
                                                              const DispatchFunction& function = nullptr);

/// Where each row of the batch is found among the results: row i is element `place[i].second` of rank `place[i].first`.
///
/// A row that several ranks hold is taken from the lowest.
/// Errors  INVALID_ARGUMENT naming a row that no rank holds.
absl::StatusOr<std::vector<std::pair<int, size_t>>> CollectRows(const std::vector<std::vector<size_t>>& dispatched,
                                                                size_t rows);

}  // namespace troupe::runtime
