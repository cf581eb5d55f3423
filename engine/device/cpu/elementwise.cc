#include "engine/device/cpu/cpu_device_impl.h"
#include "engine/device/cpu/kernel.h"
#include "engine/random/philox.h"

namespace troupe::engine::cpu {
namespace {

constexpr int64_t kGrain = 16384;  // elements a task
constexpr int64_t kColumnGrain = 256;

TROUPE_KERNEL void AddScaledRun(int64_t n, const float* x, float alpha, float* y) {
  for (int64_t i = 0; i < n; ++i) y[i] += alpha * x[i];
}

TROUPE_KERNEL void AddRun(int64_t n, const float* a, const float* b, float* out) {
  for (int64_t i = 0; i < n; ++i) out[i] = a[i] + b[i];
}

TROUPE_KERNEL void SwiGluRun(int64_t n, const float* gate, const float* up, float* y) {
  for (int64_t i = 0; i < n; ++i) y[i] = gate[i] / (1.0f + Exp(-gate[i])) * up[i];
}

TROUPE_KERNEL void SwiGluBackwardRun(int64_t n, const float* dy, const float* gate, const float* up, float* dgate, float* dup) {
  for (int64_t i = 0; i < n; ++i) {
    const float sigmoid = 1.0f / (1.0f + Exp(-gate[i]));
    const float silu = gate[i] * sigmoid;
    dup[i] = dy[i] * silu;
    dgate[i] = dy[i] * up[i] * (sigmoid + silu * (1.0f - sigmoid));
  }
}

TROUPE_KERNEL void SumRowsRun(int64_t rows, int64_t stride, int64_t columns, const float* dy, float* sum) {
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < columns; ++c) sum[c] += dy[r * stride + c];
  }
}

TROUPE_KERNEL void RotateRow(int64_t heads, int64_t half, const float* cos, const float* sin, float direction, const float* x, float* y) {
  for (int64_t h = 0; h < heads; ++h) {
    const float* a = x + h * 2 * half;
    const float* b = a + half;
    float* ya = y + h * 2 * half;
    float* yb = ya + half;
    for (int64_t i = 0; i < half; ++i) {
      const float s = direction * sin[i];
      const float first = a[i] * cos[i] - b[i] * s;
      const float second = b[i] * cos[i] + a[i] * s;
      ya[i] = first;
      yb[i] = second;
    }
  }
}

}  // namespace

void CpuDevice::AddScaled(const Tensor& x, float alpha, const Tensor& y) {
  TROUPE_CHECK_EQ(x.size(), y.size());
  ForRanges(x.size(), kGrain, [&](int64_t b, int64_t e) { AddScaledRun(e - b, x.f32() + b, alpha, y.f32() + b); });
}

void CpuDevice::Add(const Tensor& a, const Tensor& b, const Tensor& out) {
  TROUPE_CHECK_EQ(a.size(), b.size());
  ForRanges(a.size(), kGrain, [&](int64_t from, int64_t to) { AddRun(to - from, a.f32() + from, b.f32() + from, out.f32() + from); });
}

void CpuDevice::AddBias(const Tensor& bias, const Tensor& y) {
  TROUPE_CHECK_EQ(bias.size(), y.cols());
  const int64_t n = y.cols();
  ForRanges(y.rows(), 64, [&](int64_t b, int64_t e) {
    for (int64_t r = b; r < e; ++r) AddScaledRun(n, bias.f32(), 1.0f, y.f32() + r * n);
  });
}

void CpuDevice::BiasBackward(const Tensor& dy, const Tensor& dbias) {
  TROUPE_CHECK_EQ(dbias.size(), dy.cols());
  ForRanges(dy.cols(), kColumnGrain,
            [&](int64_t b, int64_t e) { SumRowsRun(dy.rows(), dy.cols(), e - b, dy.f32() + b, dbias.f32() + b); });
}

void CpuDevice::Rope(const Tensor& x, absl::Span<const int32_t> positions, const Tensor& cos, const Tensor& sin, float direction,
                     const Tensor& y) {
  const int64_t half = cos.cols(), heads = x.cols() / (2 * half);
  TROUPE_CHECK_EQ(static_cast<int64_t>(positions.size()), x.rows());
  ForRanges(x.rows(), 32, [&](int64_t b, int64_t e) {
    for (int64_t r = b; r < e; ++r) {
      const int64_t position = positions[static_cast<size_t>(r)];
      RotateRow(heads, half, cos.f32() + position * half, sin.f32() + position * half, direction, x.f32() + r * x.cols(),
                y.f32() + r * x.cols());
    }
  });
}

void CpuDevice::SwiGlu(const Tensor& gate, const Tensor& up, const Tensor& y) {
  ForRanges(y.size(), kGrain, [&](int64_t b, int64_t e) { SwiGluRun(e - b, gate.f32() + b, up.f32() + b, y.f32() + b); });
}

void CpuDevice::SwiGluBackward(const Tensor& dy, const Tensor& gate, const Tensor& up, const Tensor& dgate, const Tensor& dup) {
  ForRanges(dy.size(), kGrain, [&](int64_t b, int64_t e) {
    SwiGluBackwardRun(e - b, dy.f32() + b, gate.f32() + b, up.f32() + b, dgate.f32() + b, dup.f32() + b);
  });
}

void CpuDevice::GatherRows(const Tensor& table, absl::Span<const int32_t> rows, const Tensor& y) {
  const int64_t n = table.cols();
  ForRanges(static_cast<int64_t>(rows.size()), 64, [&](int64_t b, int64_t e) {
    for (int64_t r = b; r < e; ++r) std::copy_n(table.f32() + rows[static_cast<size_t>(r)] * n, n, y.f32() + r * n);
  });
}

void CpuDevice::ScatterAddRows(const Tensor& dy, absl::Span<const int32_t> rows, const Tensor& dtable) {
  // Cut by columns, so that rows with the same target are added in order whatever the number of threads.
  const int64_t n = dtable.cols();
  ForRanges(n, kColumnGrain, [&](int64_t b, int64_t e) {
    for (size_t r = 0; r < rows.size(); ++r) {
      AddScaledRun(e - b, dy.f32() + static_cast<int64_t>(r) * n + b, 1.0f, dtable.f32() + rows[r] * n + b);
    }
  });
}

void CpuDevice::Dropout(const Tensor& x, float p, uint64_t stream, const DropoutRows& rows, const Tensor& y) {
  const int64_t n = x.cols();
  TROUPE_CHECK_EQ(static_cast<int64_t>(rows.samples.size()), x.rows());
  const float scale = 1.0f / (1.0f - p);
  const Philox philox(rows.seed, RandomPurpose::kLoraDropout, stream);
  const auto threshold = static_cast<uint32_t>(static_cast<double>(p) * 4294967296.0);
  ForRanges(x.rows(), 16, [&](int64_t b, int64_t e) {
    for (int64_t r = b; r < e; ++r) {
      // The counter: sample and step mixed in the upper half, position and column block (2^14 of four) in the lower.
      const auto i = static_cast<size_t>(r);
      const uint64_t sample = Philox(rows.step, RandomPurpose::kLoraDropout, rows.samples[i]).Block(0)[0];
      const uint64_t base = sample << 32 ^ static_cast<uint64_t>(rows.positions[i]) << 14;
      for (int64_t c = 0; c < n; c += 4) {
        const std::array<uint32_t, 4> bits = philox.Block(base + static_cast<uint64_t>(c / 4));
        for (int64_t j = 0; j < std::min<int64_t>(4, n - c); ++j) {
          const float keep = bits[static_cast<size_t>(j)] >= threshold ? scale : 0.0f;
          y.f32()[r * n + c + j] = x.f32()[r * n + c + j] * keep;
        }
      }
    }
  });
}

}  // namespace troupe::engine::cpu
