#include "engine/ops/attention.h"

#include <cmath>

namespace troupe::engine {
namespace {

std::vector<float> RopeFrequencies(const DecoderConfig& config) {
  const RopeScaling& scaling = config.rope_scaling;
  std::vector<float> frequencies;
  for (int64_t i = 0; i < config.head_dim / 2; ++i) {
    const double exponent = static_cast<double>(2 * i) / static_cast<double>(config.head_dim);
    double f = 1.0 / std::pow(config.rope_theta, exponent);
    if (scaling.kind == RopeScaling::Kind::kLlama3) {
      // Long waves are stretched by `factor`, short ones kept, those between blended.
      const double wavelength = 2.0 * M_PI / f;
      const auto context = static_cast<double>(scaling.original_max_position_embeddings);
      const double blend = (context / wavelength - scaling.low_freq_factor) / (scaling.high_freq_factor - scaling.low_freq_factor);
      if (wavelength > context / scaling.low_freq_factor) {
        f /= scaling.factor;
      } else if (wavelength >= context / scaling.high_freq_factor) {
        f = (1.0 - blend) * f / scaling.factor + blend * f;
      }
    }
    frequencies.push_back(static_cast<float>(f));
  }
  return frequencies;
}

}  // namespace

RopeTable::RopeTable(const DecoderConfig& config, int64_t max_position) {
  const std::vector<float> frequencies = RopeFrequencies(config);
  const auto half = static_cast<int64_t>(frequencies.size());
  cos = Tensor::Empty({max_position, half});
  sin = Tensor::Empty({max_position, half});
  for (int64_t p = 0; p < max_position; ++p) {
    for (int64_t i = 0; i < half; ++i) {
      const float angle = static_cast<float>(p) * frequencies[static_cast<size_t>(i)];
      cos.f32()[p * half + i] = static_cast<float>(std::cos(static_cast<double>(angle)));
      sin.f32()[p * half + i] = static_cast<float>(std::sin(static_cast<double>(angle)));
    }
  }
}

Variable Rope(Tape& tape, const Variable& x, const std::shared_ptr<const PackedRows>& rows, const std::shared_ptr<const RopeTable>& table) {
  Device& device = tape.device();
  const Tensor y = Tensor::Empty(x.value().shape());
  device.Rope(x.value(), rows->positions, table->cos, table->sin, 1.0f, y);
  Variable out(y, x.requires_grad());
  if (!out.requires_grad()) return out;
  tape.Record([&device, x, out, rows, table] {
    if (!out.grad().defined()) return absl::OkStatus();
    const Tensor dx = Tensor::Empty(x.value().shape());
    device.Rope(out.grad(), rows->positions, table->cos, table->sin, -1.0f, dx);
    x.AccumulateGrad(device, dx);
    return absl::OkStatus();
  });
  return out;
}

Variable Attention(Tape& tape, const Variable& q, const Variable& k, const Variable& v, const std::shared_ptr<const PackedRows>& rows,
                   const AttentionShape& shape) {
  Device& device = tape.device();
  const Tensor y = Tensor::Empty(q.value().shape());
  const Tensor logsumexp = Tensor::Empty({shape.num_heads, q.value().rows()});
  device.Attention(q.value(), k.value(), v.value(), rows->starts, shape, y, logsumexp);
  Variable out(y, q.requires_grad() || k.requires_grad() || v.requires_grad());
  if (!out.requires_grad()) return out;
  tape.Record([&device, q, k, v, rows, shape, out, logsumexp] {
    if (!out.grad().defined()) return absl::OkStatus();
    const Tensor dq = Tensor::Empty(q.value().shape()), dk = Tensor::Empty(k.value().shape()), dv = Tensor::Empty(v.value().shape());
    device.AttentionBackward(out.grad(), q.value(), k.value(), v.value(), out.value(), logsumexp, rows->starts, shape, dq, dk, dv);
    if (q.requires_grad()) q.AccumulateGrad(device, dq);
    if (k.requires_grad()) k.AccumulateGrad(device, dk);
    if (v.requires_grad()) v.AccumulateGrad(device, dv);
    return absl::OkStatus();
  });
  return out;
}

}  // namespace troupe::engine
