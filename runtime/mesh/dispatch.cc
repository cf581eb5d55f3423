#include "runtime/mesh/dispatch.h"

#include <algorithm>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "runtime/base/check.h"

namespace troupe::runtime {

const char* DispatchName(Dispatch dispatch) {
  switch (dispatch) {
    case Dispatch::kAll:
      return "all";
    case Dispatch::kSlice:
      return "slice";
    case Dispatch::kSliceDp:
      return "slice_dp";
    case Dispatch::kFunction:
      return "fn";
  }
  return "?";
}

const char* CollectName(Collect collect) {
  switch (collect) {
    case Collect::kNone:
      return "none";
    case Collect::kFirst:
      return "first";
    case Collect::kFlatten:
      return "flatten";
    case Collect::kMean:
      return "mean";
    case Collect::kSum:
      return "sum";
  }
  return "?";
}

RowRange SplitRows(size_t rows, int parts, int index) {
  TROUPE_CHECK(parts > 0 && index >= 0 && index < parts) << "slice " << index << " of " << parts;
  const size_t n = static_cast<size_t>(parts);
  const size_t k = rows / n;
  const size_t m = rows % n;
  const auto begin = [&](size_t i) { return i * k + std::min(i, m); };
  const size_t i = static_cast<size_t>(index);
  return {begin(i), begin(i + 1)};
}

RowRange RowsOf(const DeviceMesh& mesh, Dispatch dispatch, int rank, size_t rows) {
  switch (dispatch) {
    case Dispatch::kAll:
      return {0, rows};
    case Dispatch::kSlice:
      return SplitRows(rows, mesh.size(), rank);
    case Dispatch::kSliceDp:
      return SplitRows(rows, mesh.data_world_size(), mesh.data_rank(rank));
    case Dispatch::kFunction:
      break;
  }
  TROUPE_CHECK(dispatch != Dispatch::kFunction) << "rows of a function are no range: use DispatchRows";
  return {};
}

std::vector<int> RepresentativeRanks(const DeviceMesh& mesh, Dispatch dispatch) {
  switch (dispatch) {
    case Dispatch::kAll:
      return {0};
    case Dispatch::kSliceDp:
      return mesh.data_representatives();
    case Dispatch::kSlice:
    case Dispatch::kFunction:
      break;
  }
  std::vector<int> ranks(static_cast<size_t>(mesh.size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

absl::StatusOr<std::vector<std::vector<size_t>>> DispatchRows(const DeviceMesh& mesh, Dispatch dispatch, size_t rows,
                                                              const DispatchFunction& function) {
  if (dispatch == Dispatch::kFunction && !function) {
    return absl::InvalidArgumentError("dispatch fn needs a function that names the rows of a rank");
  }
  std::vector<std::vector<size_t>> dispatched;
  for (int rank = 0; rank < mesh.size(); ++rank) {
    if (dispatch == Dispatch::kFunction) {
      dispatched.push_back(function(mesh, rank, rows));
      for (const size_t row : dispatched.back()) {
        if (row >= rows) {
          return absl::InvalidArgumentError(
              absl::StrCat("dispatch fn gives row ", row, " to rank ", rank, ", the batch has ", rows, " rows"));
        }
      }
    } else {
      const RowRange range = RowsOf(mesh, dispatch, rank, rows);
      dispatched.emplace_back(range.size());
      std::iota(dispatched.back().begin(), dispatched.back().end(), range.begin);
    }
  }
  return dispatched;
}

absl::StatusOr<std::vector<std::pair<int, size_t>>> CollectRows(const std::vector<std::vector<size_t>>& dispatched,
                                                                size_t rows) {
  std::vector<std::pair<int, size_t>> places(rows, {-1, 0});
  for (size_t rank = 0; rank < dispatched.size(); ++rank) {
    for (size_t element = 0; element < dispatched[rank].size(); ++element) {
      const size_t row = dispatched[rank][element];
      if (row < rows && places[row].first < 0) places[row] = {static_cast<int>(rank), element};
    }
  }
  for (size_t row = 0; row < rows; ++row) {
    if (places[row].first < 0) {
      return absl::InvalidArgumentError(absl::StrCat("flatten: row ", row, " of ", rows, " went to no rank"));
    }
  }
  return places;
}

}  // namespace troupe::runtime
