/// Adds arrays of several members along the fixed tree, tile by tile.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstring>

#include "absl/types/span.h"

namespace troupe::runtime::internal {

/// out[i] = left[i] + right[i]; `out` may be one of the two.
template <typename T>
void AddArrays(const T* left, const T* right, T* out, size_t count) {
  for (size_t i = 0; i < count; ++i) out[i] = left[i] + right[i];
}

constexpr size_t kTile = 1024;

/// One tile of TreeSumArrays: n leaves split at the largest power of two below n.
template <typename T>
void TreeSumTile(absl::Span<const T* const> leaves, size_t offset, size_t count, T* out) {
  if (leaves.size() == 1) {
    std::memcpy(out, leaves[0] + offset, count * sizeof(T));
    return;
  }
  if (leaves.size() == 2) {
    AddArrays(leaves[0] + offset, leaves[1] + offset, out, count);
    return;
  }
  const size_t left = std::bit_floor(leaves.size() - 1);
  T right[kTile];
  TreeSumTile(leaves.first(left), offset, count, out);
  TreeSumTile(leaves.subspan(left), offset, count, right);
  AddArrays(out, right, out, count);
}

/// out[i] = sum of leaves[.][i] along the tree of TreeSum (runtime/mesh/microbatch_tree.h); `out` may be one of the
/// leaves.
///
///   T(n) = T(p) + T(n - p), p the largest power of two below n
template <typename T>
void TreeSumArrays(absl::Span<const T* const> leaves, size_t count, T* out) {
  T sum[kTile];
  for (size_t offset = 0; offset < count; offset += kTile) {
    const size_t size = std::min(kTile, count - offset);
    TreeSumTile(leaves, offset, size, sum);
    std::memcpy(out + offset, sum, size * sizeof(T));
  }
}

}  // namespace troupe::runtime::internal
