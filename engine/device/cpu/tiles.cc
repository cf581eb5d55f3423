#include "engine/device/cpu/tiles.h"

#include <dnnl.h>
#include <omp.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "engine/random/philox.h"
#include "runtime/base/check.h"

namespace troupe::engine::cpu {
namespace {

constexpr int64_t kHeights[] = {256, 128, 64, 16};
constexpr int64_t kMaxHeight = 256;

void Sgemm(char transpose_a, int64_t m, int64_t n, int64_t k, const float* a, int64_t lda, const float* b, int64_t ldb,
           float beta, float* c, int64_t ldc) {
  // Per thread, and the library asks again at every call: its own threading must never be used.
  omp_set_num_threads(1);
  const dnnl_status_t status = dnnl_sgemm(transpose_a, 'N', m, n, k, 1.0f, a, lda, b, ldb, beta, c, ldc);
  TROUPE_CHECK_EQ(static_cast<int>(status), static_cast<int>(dnnl_success));
}

std::vector<float> RandomMatrix(int64_t size, uint64_t stream) {
  std::vector<float> values(static_cast<size_t>(size));
  const Philox philox(0, RandomPurpose::kInit, stream);
  for (int64_t i = 0; i < size; ++i) values[static_cast<size_t>(i)] = philox.Uniform(static_cast<uint64_t>(i)) - 0.5f;
  return values;
}

/// All kMaxHeight rows in tiles of `height`, the rows moved up by `shift` places before and moved back after.
std::vector<float> Product(const std::vector<float>& a, const std::vector<float>& b, int64_t k, int64_t n, int64_t height,
                           int64_t k_block, int64_t shift) {
  std::vector<float> moved(a.size());
  const auto place = [&](int64_t row) { return (row + shift) % kMaxHeight; };
  for (int64_t row = 0; row < kMaxHeight; ++row) std::copy_n(&a[static_cast<size_t>(row * k)], k, &moved[static_cast<size_t>(place(row) * k)]);
  std::vector<float> c(static_cast<size_t>(kMaxHeight * n));
  for (int64_t row = 0; row < kMaxHeight; row += height) {
    RunTile(height, n, k, k_block, &moved[static_cast<size_t>(row * k)], k, b.data(), n, false, &c[static_cast<size_t>(row * n)], n);
  }
  std::vector<float> back(c.size());
  for (int64_t row = 0; row < kMaxHeight; ++row) std::copy_n(&c[static_cast<size_t>(place(row) * n)], n, &back[static_cast<size_t>(row * n)]);
  return back;
}

bool SameBits(const std::vector<float>& x, const std::vector<float>& y) {
  return std::memcmp(x.data(), y.data(), x.size() * sizeof(float)) == 0;
}

/// The heights that agree with the largest one whose rows may change places.
std::vector<int64_t> AgreeingHeights(const std::vector<float>& a, const std::vector<float>& b, int64_t k, int64_t n, int64_t k_block) {
  std::vector<int64_t> heights;
  std::vector<float> reference;
  for (int64_t height : kHeights) {
    std::vector<float> c = Product(a, b, k, n, height, k_block, 0);
    if (!heights.empty() && !SameBits(c, reference)) continue;
    // 1, 5 and 11 reach every residue that vector and register blocks of 2 to 16 rows could tell apart.
    bool free_to_move = true;
    for (int64_t shift : {1, 5, 11}) free_to_move = free_to_move && SameBits(c, Product(a, b, k, n, height, k_block, shift));
    if (!free_to_move) continue;
    if (heights.empty()) reference = std::move(c);
    heights.push_back(height);
  }
  return heights;
}

TilePlan MeasurePlan(int64_t k, int64_t n) {
  const std::vector<float> a = RandomMatrix(kMaxHeight * k, 1);
  const std::vector<float> b = RandomMatrix(k * n, 2);
  TilePlan best;
  for (int64_t k_block : {k, int64_t{512}, int64_t{256}}) {
    if (k_block > k) continue;
    std::vector<int64_t> heights = AgreeingHeights(a, b, k, n, k_block);
    if (heights.size() > best.heights.size()) best = {std::move(heights), k_block};
    // A cut of K costs another pass over c: only when it brings agreement.
    if (best.heights.size() == std::size(kHeights)) break;
  }
  if (best.heights.empty()) best = {{1}, k};
  return best;
}

}  // namespace

const TilePlan& PlanTiles(int64_t k, int64_t n) {
  struct Plans {
    absl::Mutex mutex;
    std::map<std::pair<int64_t, int64_t>, std::unique_ptr<TilePlan>> by_shape ABSL_GUARDED_BY(mutex);
  };
  static Plans* plans = new Plans;
  absl::MutexLock lock(&plans->mutex);
  std::unique_ptr<TilePlan>& plan = plans->by_shape[{k, n}];
  if (plan == nullptr) plan = std::make_unique<TilePlan>(MeasurePlan(k, n));
  return *plan;
}

void RunTile(int64_t m, int64_t n, int64_t k, int64_t k_block, const float* a, int64_t lda, const float* b, int64_t ldb,
             bool accumulate, float* c, int64_t ldc) {
  for (int64_t begin = 0; begin < k; begin += k_block) {
    const float beta = begin > 0 || accumulate ? 1.0f : 0.0f;
    Sgemm('N', m, n, std::min(k_block, k - begin), a + begin, lda, b + begin * ldb, ldb, beta, c, ldc);
  }
}

void RunTransposedTile(int64_t m, int64_t n, int64_t k, const float* a, int64_t lda, const float* b, int64_t ldb, float* c,
                       int64_t ldc) {
  Sgemm('T', m, n, k, a, lda, b, ldb, 1.0f, c, ldc);
}

}  // namespace troupe::engine::cpu
