/// Which tiles of a matrix product agree bit for bit, found on this machine by trying.
#pragma once

#include <cstdint>
#include <vector>

namespace troupe::engine::cpu {

/// How a product a[M, K] b[K, N] is cut: the heights (rows) of tile whose results are equal for equal rows, largest first,
/// and the run of K that one call may sum (`k_block`; K itself when the library's own cut is the same for all heights).
///
/// A row's bits are then the same whatever the tile it falls into, its place in it, and its neighbours.
struct TilePlan {
  std::vector<int64_t> heights;
  int64_t k_block = 0;
};

/// The plan for one panel of N columns, measured at first use and remembered for the process.
///
/// oneDNN promises nothing about bits, so every height is checked on random data: against the largest, and with rows
/// moved by one place. Height 1 remains when nothing agrees.
/// Threads  thread-safe.
const TilePlan& PlanTiles(int64_t k, int64_t n);

/// c[M, N] = a b, or += when `accumulate`, with strides in elements, on the calling thread alone, K cut into `k_block`s.
void RunTile(int64_t m, int64_t n, int64_t k, int64_t k_block, const float* a, int64_t lda, const float* b, int64_t ldb,
             bool accumulate, float* c, int64_t ldc);
/// c[M, N] += a^T b.  Shapes  a: [K, M]; b: [K, N]
void RunTransposedTile(int64_t m, int64_t n, int64_t k, const float* a, int64_t lda, const float* b, int64_t ldb, float* c,
                       int64_t ldc);

}  // namespace troupe::engine::cpu
