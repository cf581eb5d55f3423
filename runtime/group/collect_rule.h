/// How the results of the ranks of a group become one: collect::None(), First(), Flatten(), Mean(), Sum().
#pragma once

#include <cstddef>
#include <iterator>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "runtime/group/dispatch_rule.h"
#include "runtime/mesh/device_mesh.h"
#include "runtime/mesh/dispatch.h"

namespace troupe::runtime {

/// How a call was dispatched: what putting the results together needs to know.
struct DispatchRecord {
  DeviceMesh mesh;
  Dispatch kind = Dispatch::kAll;
  size_t rows = 0;
  std::vector<std::vector<size_t>> rows_of;  ///< by rank
};

namespace group_internal {

/// The ranks whose results count once in a sum: every rank, but only one of those that were given the same slice.
std::vector<int> SummedRanks(const DispatchRecord& record);

template <typename T>
absl::Status AddTo(T* sum, const T& value, int rank) {
  if constexpr (IsVector<T>::value) {
    if (sum->size() != value.size()) {
      return absl::InvalidArgumentError(
          absl::StrCat("rank ", rank, " returned ", value.size(), " elements, the ranks before it ", sum->size()));
    }
    for (size_t i = 0; i < value.size(); ++i) {
      (*sum)[i] = static_cast<typename T::value_type>((*sum)[i] + value[i]);
    }
  } else {
    *sum = static_cast<T>(*sum + value);
  }
  return absl::OkStatus();
}

template <typename R>
absl::StatusOr<R> SumOf(std::vector<R> results, const DispatchRecord& record, size_t* count) {
  const std::vector<int> ranks = SummedRanks(record);
  *count = ranks.size();
  R sum = std::move(results[static_cast<size_t>(ranks.front())]);
  for (size_t i = 1; i < ranks.size(); ++i) {
    const absl::Status added = AddTo(&sum, results[static_cast<size_t>(ranks[i])], ranks[i]);
    if (!added.ok()) return added;
  }
  return sum;
}

}  // namespace group_internal

namespace collect {

/// One result a rank.
struct None {
  template <typename R>
  using Result = std::vector<R>;
  template <typename R>
  absl::StatusOr<std::vector<R>> operator()(std::vector<R> results, const DispatchRecord&) const {
    return results;
  }
};

/// That of rank 0.
struct First {
  template <typename R>
  using Result = R;
  template <typename R>
  absl::StatusOr<R> operator()(std::vector<R> results, const DispatchRecord&) const {
    return std::move(results.front());
  }
};

/// The rows of all ranks in the order in which they were dispatched; of ranks that were given the same rows the lowest counts.
///
/// Methods may return another number of rows than they were given, except after dispatch::Fn, where the places of the rows
/// are the only thing that says their order.
struct Flatten {
  template <typename R>
  using Result = R;
  template <typename R>
  absl::StatusOr<R> operator()(std::vector<R> results, const DispatchRecord& record) const {
    static_assert(group_internal::IsVector<R>::value, "flatten puts vectors together");
    R whole;
    if (record.kind != Dispatch::kFunction) {
      for (const int rank : RepresentativeRanks(record.mesh, record.kind)) {
        R& part = results[static_cast<size_t>(rank)];
        whole.insert(whole.end(), std::make_move_iterator(part.begin()), std::make_move_iterator(part.end()));
      }
      return whole;
    }
    for (size_t rank = 0; rank < results.size(); ++rank) {
      if (results[rank].size() == record.rows_of[rank].size()) continue;
      return absl::InvalidArgumentError(absl::StrCat("flatten: rank ", rank, " was given ", record.rows_of[rank].size(),
                                                     " rows and returned ", results[rank].size()));
    }
    const auto places = CollectRows(record.rows_of, record.rows);
    if (!places.ok()) return places.status();
    for (const auto& [rank, row] : *places) whole.push_back(results[static_cast<size_t>(rank)][row]);
    return whole;
  }
};

/// Sum in the order of rank, element by element for vectors; ranks that were given the same slice count once.
struct Sum {
  template <typename R>
  using Result = R;
  template <typename R>
  absl::StatusOr<R> operator()(std::vector<R> results, const DispatchRecord& record) const {
    size_t count = 0;
    return group_internal::SumOf(std::move(results), record, &count);
  }
};

/// The sum divided by the number of ranks that are in it.
struct Mean {
  template <typename R>
  using Result = R;
  template <typename R>
  absl::StatusOr<R> operator()(std::vector<R> results, const DispatchRecord& record) const {
    size_t count = 0;
    absl::StatusOr<R> sum = group_internal::SumOf(std::move(results), record, &count);
    if (!sum.ok()) return sum;
    if constexpr (group_internal::IsVector<R>::value) {
      using Element = typename R::value_type;
      for (Element& element : *sum) element = static_cast<Element>(element / static_cast<Element>(count));
    } else {
      *sum = static_cast<R>(*sum / static_cast<R>(count));
    }
    return sum;
  }
};

}  // namespace collect
}  // namespace troupe::runtime
