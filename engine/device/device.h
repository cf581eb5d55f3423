/// Every kernel the engine needs, as one interface a device; CUDA and Ascend become two more implementations.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "engine/tensor/tensor.h"

namespace troupe::engine {

/// Where sequences begin in the rows of a packed batch: sequence s has rows [starts[s], starts[s + 1]).
using SequenceStarts = std::vector<int64_t>;

struct AttentionShape {
  int64_t num_heads = 0;
  int64_t num_kv_heads = 0;
  int64_t head_dim = 0;
};

/// Which rows of a dropout mask belong to which sample, so that a mask depends on seed, step, sample and position alone.
struct DropoutRows {
  uint64_t seed = 0;
  uint64_t step = 0;
  std::vector<uint64_t> samples;    ///< [N] place of the row's sample in the global batch
  std::vector<int32_t> positions;   ///< [N] position of the row in its sample
};

struct AdamWStep {
  double learning_rate = 0;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0;
  double grad_scale = 1;  ///< from clipping
  int64_t step = 1;       ///< counts from 1
};

/// What a row of logits says about its target.
struct TokenScores {
  std::vector<float> logps;        ///< [N] log p(target)
  std::vector<float> logsumexp;    ///< [N]
  std::vector<uint8_t> is_argmax;  ///< [N] whether the target has the largest logit
};

/// Kernels on f32 tensors of one device; a row's bits never depend on its neighbours, its place or the number of threads.
///
/// Shapes   rows N, model width D; matrices are row-major
/// Threads  one caller at a time
class Device {
 public:
  virtual ~Device() = default;

  /// c = a b, or c += a b.  Shapes  a: [M, K]; b: [K, N]; c: [M, N]
  virtual void MatMul(const Tensor& a, const Tensor& b, bool accumulate, const Tensor& c) = 0;
  /// c += a^T b, summed over blocks of rows in their order.  Shapes  a: [R, M]; b: [R, N]; c: [M, N]
  virtual void MatMulTransposedA(const Tensor& a, const Tensor& b, const Tensor& c) = 0;
  /// out = a^T.
  virtual void Transpose(const Tensor& a, const Tensor& out) = 0;

  /// y += alpha x.
  virtual void AddScaled(const Tensor& x, float alpha, const Tensor& y) = 0;
  /// out = a + b.
  virtual void Add(const Tensor& a, const Tensor& b, const Tensor& out) = 0;
  /// y[n, :] += bias.
  virtual void AddBias(const Tensor& bias, const Tensor& y) = 0;
  /// dbias += sum_n dy[n, :].
  virtual void BiasBackward(const Tensor& dy, const Tensor& dbias) = 0;

  /// y[n] = gain x[n] r[n], r[n] = 1 / sqrt(mean(x[n]^2) + eps).
  virtual void RmsNorm(const Tensor& x, const Tensor& gain, double eps, const Tensor& y, const Tensor& r) = 0;
  /// dx = ...; dgain += ... when defined.
  virtual void RmsNormBackward(const Tensor& dy, const Tensor& x, const Tensor& gain, const Tensor& r, const Tensor& dx,
                               const Tensor& dgain) = 0;

  /// Rotates the halves of every head by position; `direction` -1 undoes it, which is the backward pass.
  /// Shapes  x: [N, H * head_dim]; cos, sin: [max position, head_dim / 2]
  virtual void Rope(const Tensor& x, absl::Span<const int32_t> positions, const Tensor& cos, const Tensor& sin,
                    float direction, const Tensor& y) = 0;

  /// Causal attention within each sequence; never holds T x T.
  /// Shapes  q, out: [N, H * head_dim]; k, v: [N, KV * head_dim]; logsumexp: [H, N]
  virtual void Attention(const Tensor& q, const Tensor& k, const Tensor& v, const SequenceStarts& starts,
                         const AttentionShape& shape, const Tensor& out, const Tensor& logsumexp) = 0;
  virtual void AttentionBackward(const Tensor& dout, const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& out,
                                 const Tensor& logsumexp, const SequenceStarts& starts, const AttentionShape& shape,
                                 const Tensor& dq, const Tensor& dk, const Tensor& dv) = 0;

  /// y = silu(gate) up.
  virtual void SwiGlu(const Tensor& gate, const Tensor& up, const Tensor& y) = 0;
  virtual void SwiGluBackward(const Tensor& dy, const Tensor& gate, const Tensor& up, const Tensor& dgate,
                              const Tensor& dup) = 0;

  /// y[n] = table[rows[n]].
  virtual void GatherRows(const Tensor& table, absl::Span<const int32_t> rows, const Tensor& y) = 0;
  /// dtable[rows[n]] += dy[n], n in order.
  virtual void ScatterAddRows(const Tensor& dy, absl::Span<const int32_t> rows, const Tensor& dtable) = 0;

  /// Scores of `targets` under rows of logits, written to scores[first...].
  virtual void ScoreTargets(const Tensor& logits, absl::Span<const int32_t> targets, int64_t first, TokenScores& scores) = 0;
  /// logits[n, v] = dlogps[n] ((v == target) - exp(logits[n, v] - logsumexp[n])), in place.
  virtual void ScoreTargetsBackward(absl::Span<const int32_t> targets, absl::Span<const float> logsumexp,
                                    absl::Span<const float> dlogps, const Tensor& logits) = 0;

  /// y = x keep / (1 - p), keep drawn from (seed, step, stream, sample, position, column).
  virtual void Dropout(const Tensor& x, float p, uint64_t stream, const DropoutRows& rows, const Tensor& y) = 0;

  /// One step of AdamW on a run of parameters that share a weight decay.
  virtual void AdamW(const AdamWStep& step, absl::Span<const float> grad, absl::Span<float> weight, absl::Span<float> m,
                     absl::Span<float> v) = 0;
  /// sums[i] = sum of squares of the i-th run of `chunk` elements; the last may be short.
  virtual void SumsOfSquares(absl::Span<const float> x, int64_t chunk, absl::Span<double> sums) = 0;
  /// hashes[i] = hash of the bits of the i-th run of `chunk` elements.
  virtual void Hashes(absl::Span<const float> x, int64_t chunk, absl::Span<uint64_t> hashes) = 0;
  virtual void ToBf16(absl::Span<const float> x, absl::Span<uint16_t> y) = 0;
  virtual void FromBf16(absl::Span<const uint16_t> x, absl::Span<float> y) = 0;
};

}  // namespace troupe::engine
