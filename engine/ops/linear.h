/// The linear layer, with its low-rank adapter when it has one.
#pragma once

#include "engine/autograd/tape.h"
#include "engine/fsdp/parameter.h"

namespace troupe::engine {

/// Which parameters a linear layer uses; the adapter is absent when `lora_a` is null.
struct LinearLayer {
  Parameter* weight = nullptr;  ///< [out, in]
  Parameter* bias = nullptr;    ///< [out], or null
  Parameter* lora_a = nullptr;  ///< [rank, in]
  Parameter* lora_b = nullptr;  ///< [out, rank]
  float lora_scaling = 1;
  float lora_dropout = 0;
  uint64_t lora_stream = 0;  ///< tells the dropout of this layer from all others
};

/// The adapter is never merged: trainer and sampler compute the same sums.
///
///   y  = x W^T + b + s dropout(x) A^T B^T
///   dx = dy W + dropout'(s dy B A),  dW += dy^T x,  db += sum_n dy[n],  dB += s dy^T (dropout(x) A^T),
///   dA += s (dy B)^T dropout(x)
///
/// Shapes  x: [N, in]; y: [N, out]
/// Saves   x, and s dropout(x) A^T: [N, rank]; the mask is drawn again
/// Source  Hu et al. 2021, arXiv:2106.09685; dropout as in PEFT: on the adapter's input only
Variable Linear(Tape& tape, const Variable& x, const LinearLayer& layer, const std::shared_ptr<const DropoutRows>& dropout);

}  // namespace troupe::engine
