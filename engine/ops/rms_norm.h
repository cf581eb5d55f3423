/// Root mean square normalisation with a learned gain.
#pragma once

#include "engine/autograd/tape.h"
#include "engine/fsdp/parameter.h"

namespace troupe::engine {

/// Scales every run of D numbers to unit root mean square, then by a learned gain.
///
///   r[n]   = 1 / sqrt(mean_d(x[n,d]^2) + eps)
///   y[n,d] = gain[d] r[n] x[n,d]
///   dx     = r (gain dy) - x r^3 / D sum_d(gain dy x),  dgain += sum_n dy x r
///
/// Shapes  x, y: [N, D], or [N, H D]: every head on its own (Qwen3's QK norm); gain: [D]
/// Saves   x, r: [N]
/// Source  Zhang & Sennrich 2019, arXiv:1910.07467; the gain is g, not Gemma's 1 + g
Variable RmsNorm(Tape& tape, const Variable& x, Parameter& gain, double eps);

}  // namespace troupe::engine
