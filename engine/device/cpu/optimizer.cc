#include <bit>
#include <cmath>

#include "engine/device/cpu/cpu_device_impl.h"
#include "engine/device/cpu/kernel.h"

namespace troupe::engine::cpu {
namespace {

struct AdamWScalars {
  float beta1, one_minus_beta1, beta2, one_minus_beta2, eps, decay, step_size, inverse_sqrt_correction, grad_scale;
};

TROUPE_KERNEL void AdamWRun(int64_t n, AdamWScalars s, const float* grad, float* w, float* m, float* v) {
  for (int64_t i = 0; i < n; ++i) {
    const float g = grad[i] * s.grad_scale;
    m[i] = s.beta1 * m[i] + s.one_minus_beta1 * g;
    v[i] = s.beta2 * v[i] + s.one_minus_beta2 * g * g;
    w[i] = w[i] * s.decay - s.step_size * m[i] / (std::sqrt(v[i]) * s.inverse_sqrt_correction + s.eps);
  }
}

TROUPE_KERNEL double SumOfSquares(int64_t n, const float* x) {
  double lanes[16] = {};
  int64_t i = 0;
  for (; i + 16 <= n; i += 16) {
    for (int j = 0; j < 16; ++j) lanes[j] += static_cast<double>(x[i + j]) * static_cast<double>(x[i + j]);
  }
  for (int j = 0; i + j < n; ++j) lanes[j] += static_cast<double>(x[i + j]) * static_cast<double>(x[i + j]);
  return SumLanes(lanes);
}

TROUPE_KERNEL void RoundToBf16(int64_t n, const float* x, uint16_t* y) {
  for (int64_t i = 0; i < n; ++i) {
    const uint32_t bits = std::bit_cast<uint32_t>(x[i]);
    const uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
    const bool is_nan = (bits & 0x7fffffffu) > 0x7f800000u;
    y[i] = static_cast<uint16_t>(is_nan ? (bits >> 16) | 0x40u : rounded);
  }
}

TROUPE_KERNEL void WidenBf16(int64_t n, const uint16_t* x, float* y) {
  for (int64_t i = 0; i < n; ++i) y[i] = std::bit_cast<float>(static_cast<uint32_t>(x[i]) << 16);
}

/// Multiply-and-rotate over the bits, four lanes wide.
uint64_t HashBits(int64_t n, const float* x) {
  constexpr uint64_t kMultiplier = 0x9FB21C651E98DF25ull;
  uint64_t lanes[4] = {1, 2, 3, 4};
  for (int64_t i = 0; i < n; ++i) {
    uint64_t& lane = lanes[i % 4];
    lane = std::rotl((lane ^ std::bit_cast<uint32_t>(x[i])) * kMultiplier, 29);
  }
  uint64_t hash = static_cast<uint64_t>(n);
  for (uint64_t lane : lanes) hash = std::rotl((hash ^ lane) * kMultiplier, 31);
  return hash ^ (hash >> 32);
}

constexpr int64_t kGrain = 16384;

}  // namespace

void CpuDevice::AdamW(const AdamWStep& step, absl::Span<const float> grad, absl::Span<float> weight, absl::Span<float> m,
                      absl::Span<float> v) {
  const auto t = static_cast<double>(step.step);
  const double correction1 = 1.0 - std::pow(step.beta1, t);
  const double correction2 = 1.0 - std::pow(step.beta2, t);
  const AdamWScalars scalars{.beta1 = static_cast<float>(step.beta1),
                             .one_minus_beta1 = static_cast<float>(1.0 - step.beta1),
                             .beta2 = static_cast<float>(step.beta2),
                             .one_minus_beta2 = static_cast<float>(1.0 - step.beta2),
                             .eps = static_cast<float>(step.eps),
                             .decay = static_cast<float>(1.0 - step.learning_rate * step.weight_decay),
                             .step_size = static_cast<float>(step.learning_rate / correction1),
                             .inverse_sqrt_correction = static_cast<float>(1.0 / std::sqrt(correction2)),
                             .grad_scale = static_cast<float>(step.grad_scale)};
  ForRanges(static_cast<int64_t>(weight.size()), kGrain, [&](int64_t b, int64_t e) {
    AdamWRun(e - b, scalars, grad.data() + b, weight.data() + b, m.data() + b, v.data() + b);
  });
}

void CpuDevice::SumsOfSquares(absl::Span<const float> x, int64_t chunk, absl::Span<double> sums) {
  const auto n = static_cast<int64_t>(x.size());
  pool_.ParallelFor(static_cast<int64_t>(sums.size()), [&](int64_t i) {
    sums[static_cast<size_t>(i)] = SumOfSquares(std::clamp<int64_t>(n - i * chunk, 0, chunk), x.data() + i * chunk);
  });
}

void CpuDevice::Hashes(absl::Span<const float> x, int64_t chunk, absl::Span<uint64_t> hashes) {
  const auto n = static_cast<int64_t>(x.size());
  pool_.ParallelFor(static_cast<int64_t>(hashes.size()), [&](int64_t i) {
    hashes[static_cast<size_t>(i)] = HashBits(std::clamp<int64_t>(n - i * chunk, 0, chunk), x.data() + i * chunk);
  });
}

void CpuDevice::ToBf16(absl::Span<const float> x, absl::Span<uint16_t> y) {
  ForRanges(static_cast<int64_t>(x.size()), kGrain, [&](int64_t b, int64_t e) { RoundToBf16(e - b, x.data() + b, y.data() + b); });
}

void CpuDevice::FromBf16(absl::Span<const uint16_t> x, absl::Span<float> y) {
  ForRanges(static_cast<int64_t>(x.size()), kGrain, [&](int64_t b, int64_t e) { WidenBf16(e - b, x.data() + b, y.data() + b); });
}

}  // namespace troupe::engine::cpu
