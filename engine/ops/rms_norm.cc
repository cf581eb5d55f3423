#include "engine/ops/rms_norm.h"

namespace troupe::engine {

Variable RmsNorm(Tape& tape, const Variable& x, Parameter& gain, double eps) {
  Device& device = tape.device();
  const Tensor y = Tensor::Empty(x.value().shape());
  const Tensor r = Tensor::Empty({x.value().size() / gain.spec().shape[0]});
  device.RmsNorm(x.value(), gain.value(), eps, y, r);
  Variable out(y, x.requires_grad() || gain.trainable());
  if (!out.requires_grad()) return out;
  tape.Record([&device, x, &gain, out, r] {
    if (!out.grad().defined()) return absl::OkStatus();
    const Tensor dx = Tensor::Empty(x.value().shape());
    device.RmsNormBackward(out.grad(), x.value(), gain.value(), r, dx, gain.grad());
    if (x.requires_grad()) x.AccumulateGrad(device, dx);
    return absl::OkStatus();
  });
  return out;
}

}  // namespace troupe::engine
