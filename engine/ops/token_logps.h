/// Log-probabilities of given tokens, with the logits never held whole.
#pragma once

#include "engine/autograd/tape.h"
#include "engine/fsdp/parameter.h"

namespace troupe::engine {

/// What the model says of each target, and where gradients enter: dlogps[n] = d loss / d logps[n].
///
///   logits[n] = x[n] W^T,  logps[n] = logits[n, target[n]] - log sum_v e^logits[n, v]
///   dlogits[n, v] = dlogps[n] ([v = target[n]] - softmax(logits[n])[v]),  dx = dlogits W,  dW += dlogits^T x
///
/// Shapes  x: [N, D]; W: [V, D]; scores, dlogps: [N]
/// Saves   x and the logarithm of each row's sum; the logits of a few rows at a time are computed again in the backward pass
/// Lifetime fill `*dlogps` between the call and Tape::Backward
TokenScores TokenLogps(Tape& tape, const Variable& x, Parameter& head, std::vector<int32_t> targets,
                       std::shared_ptr<std::vector<float>> dlogps);

}  // namespace troupe::engine
