/// Which micro-batch of a global batch a rank does at which step, and the order in which their gradients are added.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/base/check.h"

namespace troupe::runtime {

/// Deals M micro-batches to dp x fsdp ranks so that every mesh adds their gradients along the same tree.
///
///   A = M / (dp F) = 2^a odd                     accumulation steps a rank does
///   j = jo 2^a + j2, jo < odd, j2 < 2^a          step
///   m = ((jo dp + d) 2^a + j2) F + f             micro-batch of rank (d, f) at step j
///
/// Sum: reduce-scatter over fsdp (after each step), TreeSum over j2 (locally), all-reduce over dp (after each 2^a
/// steps), then the groups jo added in order. With dp and F powers of two these are aligned blocks of F, 2^a F and 2^a
/// F dp = 2^k leaves, where
/// M = 2^k odd, so the tree is MicroBatchTreeSum over the M leaves, which knows nothing of the mesh.
class MicroBatchPlan {
 public:
  struct Shape {
    int dp = 1;
    int fsdp = 1;
  };

  /// Errors  INVALID_ARGUMENT when M is not a multiple of dp x fsdp, saying what to change.
  static absl::StatusOr<MicroBatchPlan> Create(int64_t micro_batches, Shape shape);

  /// Where a rank stands in the mesh and in its accumulation.
  struct Place {
    int d = 0;
    int f = 0;
    int64_t step = 0;
    friend bool operator==(const Place& a, const Place& b) { return a.d == b.d && a.f == b.f && a.step == b.step; }
  };

  int64_t MicroBatch(const Place& place) const;
  /// The inverse of MicroBatch.
  Place PlaceOf(int64_t micro_batch) const;

  int64_t micro_batches() const { return micro_batches_; }
  /// A: steps of a rank.
  int64_t Steps() const { return groups_ * steps_per_dp_reduce_; }
  /// 2^a: steps whose gradients are added locally before one all-reduce over dp.
  int64_t StepsPerDpReduce() const { return steps_per_dp_reduce_; }
  /// odd: all-reduces over dp, whose results are added in order.
  int64_t Groups() const { return groups_; }
  /// Whether dp and fsdp are powers of two, so that the bits are those of every such mesh.
  bool SameBits() const;

 private:
  MicroBatchPlan(int64_t micro_batches, Shape shape, int64_t steps_per_dp_reduce, int64_t groups)
      : micro_batches_(micro_batches), shape_(shape), steps_per_dp_reduce_(steps_per_dp_reduce), groups_(groups) {}

  int64_t micro_batches_;
  Shape shape_;
  int64_t steps_per_dp_reduce_;
  int64_t groups_;
};

/// Adds leaves that come one by one along the tree of a binary counter, holding at most log2(n) + 1 partial sums.
///
///   two neighbouring blocks of equal size are added as soon as both are there: ((0+1)+(2+3))+...
///   at the end blocks are folded from the smallest (the last) to the largest: b4 + (b2 + b1) for 7 leaves
///
/// The left operand is always the block of lower leaves. `Add(T& left, const T& right)` does left += right.
template <typename T, typename AddFn>
class BinaryCounterSum {
 public:
  explicit BinaryCounterSum(AddFn add) : add_(std::move(add)) {}

  void Push(T leaf) {
    blocks_.push_back({std::move(leaf), 1});
    while (blocks_.size() >= 2 && blocks_[blocks_.size() - 2].leaves == blocks_.back().leaves) FoldLast();
  }
  bool empty() const { return blocks_.empty(); }
  /// The sum; empty again after.
  T Take() {
    TROUPE_CHECK(!blocks_.empty()) << "no leaf was pushed";
    while (blocks_.size() >= 2) FoldLast();
    T sum = std::move(blocks_.back().sum);
    blocks_.clear();
    return sum;
  }

 private:
  struct Block {
    T sum;
    size_t leaves;
  };
  void FoldLast() {
    Block right = std::move(blocks_.back());
    blocks_.pop_back();
    add_(blocks_.back().sum, right.sum);
    blocks_.back().leaves += right.leaves;
  }

  AddFn add_;
  std::vector<Block> blocks_;
};

/// The sum of `leaves` along the tree of BinaryCounterSum; collectives add ranks along it.
template <typename T>
T TreeSum(const std::vector<T>& leaves) {
  const auto add = [](T& left, const T& right) { left = left + right; };
  BinaryCounterSum<T, decltype(add)> sum(add);
  for (const T& leaf : leaves) sum.Push(leaf);
  return sum.Take();
}

/// The sum of M = 2^k odd leaves: aligned blocks of 2^k along TreeSum, the blocks then added in order
/// (((b0+b1)+b2)+...).
///
/// Equals TreeSum for odd = 1 and 3; for odd >= 5 one running sum takes the place of log2(odd) partial sums.
template <typename T>
T MicroBatchTreeSum(const std::vector<T>& leaves) {
  TROUPE_CHECK(!leaves.empty()) << "no leaves";
  const size_t block = leaves.size() & (~leaves.size() + 1);
  T total{};
  for (size_t begin = 0; begin < leaves.size(); begin += block) {
    const T sum = TreeSum(std::vector<T>(leaves.begin() + static_cast<std::ptrdiff_t>(begin),
                                         leaves.begin() + static_cast<std::ptrdiff_t>(begin + block)));
    total = begin == 0 ? sum : total + sum;
  }
  return total;
}

}  // namespace troupe::runtime
