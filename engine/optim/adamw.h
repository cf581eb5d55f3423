/// AdamW on the shards of a model, with clipping by the norm over all shards.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/comm/communicator.h"
#include "engine/fsdp/parameter_block.h"

namespace troupe::engine {

struct AdamWOptions {
  double beta1 = 0.9;
  double beta2 = 0.95;
  double eps = 1e-8;
  double weight_decay = 0.1;
  double max_grad_norm = 1.0;  ///< 0: no clipping
};

/// What a step did.
struct StepResult {
  double grad_norm = 0;     ///< before clipping
  uint64_t state_hash = 0;  ///< of the trainable weights after the step, the same on every mesh
};

/// g = grad min(1, max_norm / (|grad| + 1e-6))
///   m = b1 m + (1 - b1) g,  v = b2 v + (1 - b2) g^2
///   w = w (1 - lr wd) - lr / (1 - b1^t) m / (sqrt(v) / sqrt(1 - b2^t) + eps)
///
/// Weight decay skips parameters whose spec says so (norms and biases), as transformers' Trainer does.
/// |grad|^2 is summed over runs of kShardChunk elements and then over the runs in the order of the parameters.
/// Source  Loshchilov & Hutter 2019, arXiv:1711.05101; clipping as torch.nn.utils.clip_grad_norm_
class AdamW {
 public:
  AdamW(std::vector<ParameterBlock*> blocks, AdamWOptions options, Communicator& fsdp, Device& device);

  /// Blocking for two all-gathers of a few bytes; every rank must call it with the gradients of its shards.
  absl::StatusOr<StepResult> Step(const std::vector<Tensor>& gradients, double learning_rate);
  /// The hash that the next StepResult would carry if nothing changed.
  absl::StatusOr<uint64_t> StateHash();
  int64_t step() const { return step_; }

 private:
  absl::StatusOr<double> GradNorm(const std::vector<Tensor>& gradients);

  std::vector<ParameterBlock*> blocks_;
  AdamWOptions options_;
  Communicator* fsdp_;
  Device* device_;
  std::vector<Tensor> m_, v_;
  int64_t step_ = 0;
};

}  // namespace troupe::engine
