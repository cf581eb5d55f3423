#include <cmath>

#include "engine/device/cpu/cpu_device_impl.h"
#include "engine/device/cpu/kernel.h"

namespace troupe::engine::cpu {
namespace {

/// sum_d a[d] b[d] in sixteen lanes, then along a tree: an order that depends on the length alone.
TROUPE_INLINE float Dot(int64_t n, const float* a, const float* b) {
  float lanes[16] = {};
  int64_t d = 0;
  for (; d + 16 <= n; d += 16) {
    for (int i = 0; i < 16; ++i) lanes[i] += a[d + i] * b[d + i];
  }
  for (int i = 0; d + i < n; ++i) lanes[i] += a[d + i] * b[d + i];
  return SumLanes(lanes);
}

TROUPE_INLINE float WeightedDot(int64_t n, const float* a, const float* w, const float* b) {
  float lanes[16] = {};
  int64_t d = 0;
  for (; d + 16 <= n; d += 16) {
    for (int i = 0; i < 16; ++i) lanes[i] += a[d + i] * w[d + i] * b[d + i];
  }
  for (int i = 0; d + i < n; ++i) lanes[i] += a[d + i] * w[d + i] * b[d + i];
  return SumLanes(lanes);
}

TROUPE_KERNEL void RmsNormRow(int64_t n, const float* x, const float* gain, float eps, float* y, float* r) {
  const float scale = 1.0f / std::sqrt(Dot(n, x, x) / static_cast<float>(n) + eps);
  *r = scale;
  for (int64_t d = 0; d < n; ++d) y[d] = x[d] * scale * gain[d];
}

// dx = r (gain dy) - x r^3 / D sum_d(gain dy x)
TROUPE_KERNEL void RmsNormBackwardRow(int64_t n, const float* dy, const float* x, const float* gain, float r, float* dx) {
  const float along = WeightedDot(n, dy, gain, x) * r * r * r / static_cast<float>(n);
  for (int64_t d = 0; d < n; ++d) dx[d] = r * gain[d] * dy[d] - along * x[d];
}

TROUPE_KERNEL void GainBackwardRun(int64_t rows, int64_t stride, int64_t columns, const float* dy, const float* x, const float* r,
                                   float* dgain) {
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t c = 0; c < columns; ++c) dgain[c] += dy[row * stride + c] * x[row * stride + c] * r[row];
  }
}

}  // namespace

void CpuDevice::RmsNorm(const Tensor& x, const Tensor& gain, double eps, const Tensor& y, const Tensor& r) {
  const int64_t n = gain.size(), rows = x.size() / n;
  TROUPE_CHECK_EQ(rows * n, x.size());
  ForRanges(rows, 32, [&](int64_t b, int64_t e) {
    for (int64_t i = b; i < e; ++i) {
      RmsNormRow(n, x.f32() + i * n, gain.f32(), static_cast<float>(eps), y.f32() + i * n, r.f32() + i);
    }
  });
}

void CpuDevice::RmsNormBackward(const Tensor& dy, const Tensor& x, const Tensor& gain, const Tensor& r, const Tensor& dx,
                                const Tensor& dgain) {
  const int64_t n = gain.size(), rows = x.size() / n;
  ForRanges(rows, 32, [&](int64_t b, int64_t e) {
    for (int64_t i = b; i < e; ++i) RmsNormBackwardRow(n, dy.f32() + i * n, x.f32() + i * n, gain.f32(), r.f32()[i], dx.f32() + i * n);
  });
  if (!dgain.defined()) return;
  ForRanges(n, 256, [&](int64_t b, int64_t e) {
    GainBackwardRun(rows, n, e - b, dy.f32() + b, x.f32() + b, r.f32(), dgain.f32() + b);
  });
}

}  // namespace troupe::engine::cpu
