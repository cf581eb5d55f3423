#include <cmath>

#include "engine/device/cpu/cpu_device_impl.h"
#include "engine/device/cpu/kernel.h"

namespace troupe::engine::cpu {
namespace {

TROUPE_KERNEL float RowMax(int64_t n, const float* x) {
  float lanes[16];
  for (int i = 0; i < 16; ++i) lanes[i] = x[i < n ? i : 0];
  int64_t v = 0;
  for (; v + 16 <= n; v += 16) {
    for (int i = 0; i < 16; ++i) lanes[i] = x[v + i] > lanes[i] ? x[v + i] : lanes[i];
  }
  for (; v < n; ++v) lanes[0] = x[v] > lanes[0] ? x[v] : lanes[0];
  float max = lanes[0];
  for (int i = 1; i < 16; ++i) max = lanes[i] > max ? lanes[i] : max;
  return max;
}

TROUPE_KERNEL float SumExp(int64_t n, const float* x, float max) {
  float lanes[16] = {};
  int64_t v = 0;
  for (; v + 16 <= n; v += 16) {
    for (int i = 0; i < 16; ++i) lanes[i] += Exp(x[v + i] - max);
  }
  for (int i = 0; v + i < n; ++i) lanes[i] += Exp(x[v + i] - max);
  return SumLanes(lanes);
}

TROUPE_KERNEL void SoftmaxGradRow(int64_t n, int32_t target, float logsumexp, float dlogp, float* logits) {
  for (int64_t v = 0; v < n; ++v) logits[v] = -dlogp * Exp(logits[v] - logsumexp);
  logits[target] += dlogp;
}

}  // namespace

void CpuDevice::ScoreTargets(const Tensor& logits, absl::Span<const int32_t> targets, int64_t first, TokenScores& scores) {
  const int64_t n = logits.cols();
  ForRanges(logits.rows(), 4, [&](int64_t b, int64_t e) {
    for (int64_t r = b; r < e; ++r) {
      const float* row = logits.f32() + r * n;
      const float target = row[targets[static_cast<size_t>(r)]];
      const float max = RowMax(n, row);
      const float logsumexp = max + std::log(SumExp(n, row, max));
      const auto i = static_cast<size_t>(first + r);
      scores.logsumexp[i] = logsumexp;
      scores.logps[i] = target - logsumexp;
      scores.is_argmax[i] = target >= max ? 1 : 0;
    }
  });
}

void CpuDevice::ScoreTargetsBackward(absl::Span<const int32_t> targets, absl::Span<const float> logsumexp,
                                     absl::Span<const float> dlogps, const Tensor& logits) {
  const int64_t n = logits.cols();
  ForRanges(logits.rows(), 4, [&](int64_t b, int64_t e) {
    for (int64_t r = b; r < e; ++r) {
      const auto i = static_cast<size_t>(r);
      SoftmaxGradRow(n, targets[i], logsumexp[i], dlogps[i], logits.f32() + r * n);
    }
  });
}

}  // namespace troupe::engine::cpu
