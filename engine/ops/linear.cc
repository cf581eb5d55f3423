#include "engine/ops/linear.h"

namespace troupe::engine {
namespace {

Tensor AdapterInput(Device& device, const Tensor& x, const LinearLayer& layer, const std::shared_ptr<const DropoutRows>& dropout) {
  if (dropout == nullptr || layer.lora_dropout == 0) return x;
  const Tensor dropped = Tensor::Empty(x.shape());
  device.Dropout(x, layer.lora_dropout, layer.lora_stream, *dropout, dropped);
  return dropped;
}

/// s x, in memory of its own.
Tensor Scaled(Device& device, const Tensor& x, float s) {
  const Tensor y = Tensor::Zeros(x.shape());
  device.AddScaled(x, s, y);
  return y;
}

}  // namespace

Variable Linear(Tape& tape, const Variable& x, const LinearLayer& layer, const std::shared_ptr<const DropoutRows>& dropout) {
  Device& device = tape.device();
  const int64_t num_rows = x.value().rows();
  const bool adapted = layer.lora_a != nullptr;
  const Tensor y = Tensor::Empty({num_rows, layer.weight->spec().shape[0]});
  device.MatMul(x.value(), layer.weight->transposed(device), false, y);
  if (layer.bias != nullptr) device.AddBias(layer.bias->value(), y);
  Tensor low_rank;
  if (adapted) {
    const Tensor u = Tensor::Empty({num_rows, layer.lora_a->spec().shape[0]});
    device.MatMul(AdapterInput(device, x.value(), layer, dropout), layer.lora_a->transposed(device), false, u);
    low_rank = Scaled(device, u, layer.lora_scaling);
    device.MatMul(low_rank, layer.lora_b->transposed(device), true, y);
  }
  const bool trains = layer.weight->trainable() || adapted || (layer.bias != nullptr && layer.bias->trainable());
  Variable out(y, x.requires_grad() || trains);
  if (!out.requires_grad()) return out;
  tape.Record([&device, x, layer, dropout, out, low_rank, adapted] {
    const Tensor& dy = out.grad();
    if (!dy.defined()) return absl::OkStatus();
    if (layer.weight->trainable()) device.MatMulTransposedA(dy, x.value(), layer.weight->grad());
    if (layer.bias != nullptr && layer.bias->trainable()) device.BiasBackward(dy, layer.bias->grad());
    Tensor dx;
    if (x.requires_grad()) {
      dx = Tensor::Empty(x.value().shape());
      device.MatMul(dy, layer.weight->value(), false, dx);
    }
    if (adapted) {
      device.MatMulTransposedA(dy, low_rank, layer.lora_b->grad());
      const Tensor dy_b = Tensor::Empty(low_rank.shape());
      device.MatMul(dy, layer.lora_b->value(), false, dy_b);
      const Tensor du = Scaled(device, dy_b, layer.lora_scaling);
      device.MatMulTransposedA(du, AdapterInput(device, x.value(), layer, dropout), layer.lora_a->grad());
      if (x.requires_grad()) {
        const Tensor through = Tensor::Empty(x.value().shape());
        device.MatMul(du, layer.lora_a->value(), false, through);
        device.AddScaled(AdapterInput(device, through, layer, dropout), 1.0f, dx);
      }
    }
    if (x.requires_grad()) x.AccumulateGrad(device, dx);
    return absl::OkStatus();
  });
  return out;
}

}  // namespace troupe::engine
