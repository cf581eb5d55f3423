#include "engine/ops/elementwise.h"

namespace troupe::engine {

Variable Add(Tape& tape, const Variable& a, const Variable& b) {
  Device& device = tape.device();
  const Tensor y = Tensor::Empty(a.value().shape());
  device.Add(a.value(), b.value(), y);
  Variable out(y, a.requires_grad() || b.requires_grad());
  if (!out.requires_grad()) return out;
  tape.Record([&device, a, b, out] {
    if (!out.grad().defined()) return absl::OkStatus();
    for (const Variable& input : {a, b}) {
      if (!input.requires_grad()) continue;
      const Tensor copy = Tensor::Zeros(out.value().shape());
      device.AddScaled(out.grad(), 1.0f, copy);
      input.AccumulateGrad(device, copy);
    }
    return absl::OkStatus();
  });
  return out;
}

Variable SwiGlu(Tape& tape, const Variable& gate, const Variable& up) {
  Device& device = tape.device();
  const Tensor y = Tensor::Empty(gate.value().shape());
  device.SwiGlu(gate.value(), up.value(), y);
  Variable out(y, gate.requires_grad() || up.requires_grad());
  if (!out.requires_grad()) return out;
  tape.Record([&device, gate, up, out] {
    if (!out.grad().defined()) return absl::OkStatus();
    const Tensor dgate = Tensor::Empty(gate.value().shape()), dup = Tensor::Empty(up.value().shape());
    device.SwiGluBackward(out.grad(), gate.value(), up.value(), dgate, dup);
    if (gate.requires_grad()) gate.AccumulateGrad(device, dgate);
    if (up.requires_grad()) up.AccumulateGrad(device, dup);
    return absl::OkStatus();
  });
  return out;
}

Variable SelectRows(Tape& tape, const Variable& x, std::vector<int32_t> rows) {
  Device& device = tape.device();
  const Tensor y = Tensor::Empty({static_cast<int64_t>(rows.size()), x.value().cols()});
  device.GatherRows(x.value(), rows, y);
  Variable out(y, x.requires_grad());
  if (!out.requires_grad()) return out;
  tape.Record([&device, x, out, rows = std::move(rows)] {
    if (!out.grad().defined()) return absl::OkStatus();
    const Tensor dx = Tensor::Zeros(x.value().shape());
    device.ScatterAddRows(out.grad(), rows, dx);
    x.AccumulateGrad(device, dx);
    return absl::OkStatus();
  });
  return out;
}

Variable Embedding(Tape& tape, Parameter& table, std::vector<int32_t> ids) {
  Device& device = tape.device();
  const Tensor y = Tensor::Empty({static_cast<int64_t>(ids.size()), table.spec().shape[1]});
  device.GatherRows(table.value(), ids, y);
  Variable out(y, table.trainable());
  if (!out.requires_grad()) return out;
  tape.Record([&device, &table, out, ids = std::move(ids)] {
    if (out.grad().defined()) device.ScatterAddRows(out.grad(), ids, table.grad());
    return absl::OkStatus();
  });
  return out;
}

}  // namespace troupe::engine
