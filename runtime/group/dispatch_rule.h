/// How the arguments of a call on a group are dealt to its ranks: dispatch::All(), Slice(), SliceDp(), Fn(f).
#pragma once

#include <cstddef>
#include <functional>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "runtime/mesh/device_mesh.h"
#include "runtime/mesh/dispatch.h"

namespace troupe::runtime {

/// The elements of std::vector arguments are the rows; all other arguments are given to every rank.
struct DispatchRule {
  Dispatch kind = Dispatch::kAll;
  DispatchFunction function;
};

/// An argument that is given to every rank whole, although it is a std::vector.
template <typename T>
struct WholeArgument {
  const T& value;
};

namespace dispatch {

inline DispatchRule All() { return {Dispatch::kAll, nullptr}; }
/// Rank r of n gets the r-th of n slices whose sizes differ by at most one.
inline DispatchRule Slice() { return {Dispatch::kSlice, nullptr}; }
/// The same by data_rank: ranks that differ only in other dimensions than dp and fsdp get the same rows.
inline DispatchRule SliceDp() { return {Dispatch::kSliceDp, nullptr}; }
/// `rows_of(num_rows, rank)` names the rows of each rank, in the order in which it gets them.
inline DispatchRule Fn(std::function<std::vector<int>(int num_rows, int rank)> rows_of) {
  return {Dispatch::kFunction, [rows_of = std::move(rows_of)](const DeviceMesh&, int rank, size_t rows) {
            std::vector<size_t> chosen;
            // A negative row becomes one that is far too large, and is refused by name.
            for (const int row : rows_of(static_cast<int>(rows), rank)) chosen.push_back(static_cast<size_t>(row));
            return chosen;
          }};
}
template <typename T>
WholeArgument<T> Whole(const T& value) {
  return {value};
}

}  // namespace dispatch

namespace group_internal {

template <typename T>
struct IsVector : std::false_type {};
template <typename T>
struct IsVector<std::vector<T>> : std::true_type {};

/// The number of rows so far; sets `status` when two arguments disagree.
template <typename T>
void CountRows(const T& argument, bool* found, size_t* rows, absl::Status* status) {
  if constexpr (IsVector<T>::value) {
    if (*found && *rows != argument.size()) {
      *status =
          absl::InvalidArgumentError(absl::StrCat("one argument has ", *rows, " rows, another has ", argument.size()));
    }
    *found = true;
    *rows = argument.size();
  }
}

/// What one rank gets of an argument.
template <typename T>
decltype(auto) RowsFor(const T& argument, const std::vector<size_t>& rows) {
  if constexpr (IsVector<T>::value) {
    T chosen;
    chosen.reserve(rows.size());
    for (const size_t row : rows) chosen.push_back(argument[row]);
    return chosen;
  } else {
    return static_cast<const T&>(argument);
  }
}
template <typename T>
const T& RowsFor(const WholeArgument<T>& argument, const std::vector<size_t>&) {
  return argument.value;
}

}  // namespace group_internal
}  // namespace troupe::runtime
