#include <cmath>
#include <cstring>
#include <limits>

#include "engine/device/cpu/cpu_device_impl.h"
#include "engine/device/cpu/kernel.h"

namespace troupe::engine::cpu {
namespace {

// Attention in blocks of kBlock queries by kBlock keys, as in FlashAttention: a running maximum m and sum l a row,
//   m' = max(m, max_j s_j),  o = o e^(m - m') + sum_j e^(s_j - m') v_j,  l likewise.
// Blocks are counted from the sequence's start, so a row's bits depend on its position and its sequence alone.
// Source  Dao et al. 2022, arXiv:2205.14135
constexpr int64_t kBlock = 64;

int64_t RoundUp(int64_t n, int64_t multiple) { return (n + multiple - 1) / multiple * multiple; }

/// c[kRows, 16] (+)= a b with a[r, k] at a[r * row_step + k * k_step]; every row is summed over k in order.
template <int kRows>
TROUPE_INLINE void MultiplyRows(int64_t k, const float* a, int64_t row_step, int64_t k_step, const float* b, int64_t ldb, float* c,
                                int64_t ldc) {
  F16 sums[kRows];
  for (int r = 0; r < kRows; ++r) sums[r] = *reinterpret_cast<const F16*>(c + r * ldc);
  for (int64_t i = 0; i < k; ++i) {
    const F16 row = *reinterpret_cast<const F16*>(b + i * ldb);
    for (int r = 0; r < kRows; ++r) sums[r] += a[r * row_step + i * k_step] * row;
  }
  for (int r = 0; r < kRows; ++r) *reinterpret_cast<F16*>(c + r * ldc) = sums[r];
}

/// c[m, n] += a b; n is a multiple of 16.
TROUPE_KERNEL void Multiply(int64_t m, int64_t n, int64_t k, const float* a, int64_t row_step, int64_t k_step, const float* b,
                            int64_t ldb, float* c, int64_t ldc) {
  for (int64_t column = 0; column < n; column += 16) {
    int64_t row = 0;
    for (; row + 8 <= m; row += 8) {
      MultiplyRows<8>(k, a + row * row_step, row_step, k_step, b + column, ldb, c + row * ldc + column, ldc);
    }
    for (; row < m; ++row) {
      MultiplyRows<1>(k, a + row * row_step, row_step, k_step, b + column, ldb, c + row * ldc + column, ldc);
    }
  }
}

/// One block of scores of one row: updates the row's maximum, sum and output, and turns scores into weights.
TROUPE_KERNEL void SoftmaxBlockRow(int64_t visible, float scale, float* scores, int64_t head_dim, float* out, float* max, float* sum) {
  float block_max = *max;
  for (int64_t j = 0; j < visible; ++j) {
    scores[j] *= scale;
    block_max = scores[j] > block_max ? scores[j] : block_max;
  }
  const float shrink = *max == -std::numeric_limits<float>::infinity() ? 0.0f : Exp(*max - block_max);
  float lanes[16] = {};
  for (int64_t j = 0; j < kBlock; ++j) scores[j] = j < visible ? Exp(scores[j] - block_max) : 0.0f;
  for (int64_t j = 0; j < kBlock; j += 16) {
    for (int64_t i = 0; i < 16; ++i) lanes[i] += scores[j + i];
  }
  *sum = *sum * shrink + SumLanes(lanes);
  for (int64_t d = 0; d < head_dim; ++d) out[d] *= shrink;
  *max = block_max;
}

/// weights = exp(scale scores - logsumexp), gradient of scores = weights (dweights - delta) scale; 0 beyond `visible`.
TROUPE_KERNEL void SoftmaxBackwardRow(int64_t visible, float scale, float logsumexp, float delta, float* scores, float* dweights) {
  for (int64_t j = 0; j < kBlock; ++j) {
    const float weight = j < visible ? Exp(scores[j] * scale - logsumexp) : 0.0f;
    scores[j] = weight;
    dweights[j] = weight * (dweights[j] - delta) * scale;
  }
}

TROUPE_KERNEL float Dot(int64_t n, const float* a, const float* b) {
  float lanes[16] = {};
  for (int64_t d = 0; d < n; d += 16) {
    for (int64_t i = 0; i < 16; ++i) lanes[i] += a[d + i] * b[d + i];
  }
  return SumLanes(lanes);
}

/// One head of one sequence, rows padded with zeros to whole blocks and columns to multiples of 16.
struct Panel {
  Panel(const Tensor& x, int64_t first, int64_t length, int64_t head, int64_t head_dim)
      : rows(RoundUp(length, kBlock)), cols(RoundUp(head_dim, 16)), values(Tensor::Zeros({rows, cols})) {
    for (int64_t t = 0; t < length; ++t) {
      std::memcpy(values.f32() + t * cols, x.f32() + (first + t) * x.cols() + head * head_dim,
                  static_cast<size_t>(head_dim) * sizeof(float));
    }
  }
  Panel(int64_t length, int64_t head_dim)
      : rows(RoundUp(length, kBlock)), cols(RoundUp(head_dim, 16)), values(Tensor::Zeros({rows, cols})) {}

  Tensor Transposed() const {
    const Tensor out = Tensor::Empty({cols, rows});
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t c = 0; c < cols; ++c) out.f32()[c * rows + r] = values.f32()[r * cols + c];
    }
    return out;
  }
  float* row(int64_t r) const { return values.f32() + r * cols; }
  void Store(const Tensor& x, int64_t first, int64_t length, int64_t head, int64_t head_dim) const {
    for (int64_t t = 0; t < length; ++t) {
      std::memcpy(x.f32() + (first + t) * x.cols() + head * head_dim, row(t), static_cast<size_t>(head_dim) * sizeof(float));
    }
  }

  int64_t rows, cols;
  Tensor values;
};

int64_t Visible(int64_t row, int64_t key_block) { return std::clamp<int64_t>(row - key_block + 1, 0, kBlock); }

}  // namespace

void CpuDevice::Attention(const Tensor& q, const Tensor& k, const Tensor& v, const SequenceStarts& starts,
                          const AttentionShape& shape, const Tensor& out, const Tensor& logsumexp) {
  const int64_t hd = shape.head_dim, group = shape.num_heads / shape.num_kv_heads;
  const float scale = 1.0f / std::sqrt(static_cast<float>(hd));
  const int64_t num_rows = q.rows();
  const auto num_sequences = static_cast<int64_t>(starts.size()) - 1;
  pool_.ParallelFor(num_sequences * shape.num_kv_heads, [&](int64_t task) {
    const int64_t kv = task % shape.num_kv_heads;
    const int64_t first = starts[static_cast<size_t>(task / shape.num_kv_heads)];
    const int64_t length = starts[static_cast<size_t>(task / shape.num_kv_heads) + 1] - first;
    const Panel values(v, first, length, kv, hd);
    const Tensor keys = Panel(k, first, length, kv, hd).Transposed();
    const Tensor scores = Tensor::Empty({kBlock, kBlock});
    for (int64_t head = kv * group; head < (kv + 1) * group; ++head) {
      const Panel queries(q, first, length, head, hd);
      const Panel output(length, hd);
      for (int64_t block = 0; block < length; block += kBlock) {
        const int64_t rows = std::min(kBlock, length - block);
        float max[kBlock], sum[kBlock] = {};
        std::fill_n(max, kBlock, -std::numeric_limits<float>::infinity());
        for (int64_t key_block = 0; key_block <= block; key_block += kBlock) {
          scores.Fill(0);
          Multiply(rows, kBlock, queries.cols, queries.row(block), queries.cols, 1, keys.f32() + key_block, values.rows, scores.f32(),
                   kBlock);
          for (int64_t r = 0; r < rows; ++r) {
            SoftmaxBlockRow(Visible(block + r, key_block), scale, scores.f32() + r * kBlock, output.cols, output.row(block + r),
                            &max[r], &sum[r]);
          }
          Multiply(rows, output.cols, kBlock, scores.f32(), kBlock, 1, values.row(key_block), values.cols, output.row(block),
                   output.cols);
        }
        for (int64_t r = 0; r < rows; ++r) {
          const float inverse = 1.0f / sum[r];
          for (int64_t d = 0; d < output.cols; ++d) output.row(block + r)[d] *= inverse;
          logsumexp.f32()[head * num_rows + first + block + r] = max[r] + std::log(sum[r]);
        }
      }
      output.Store(out, first, length, head, hd);
    }
  });
}

void CpuDevice::AttentionBackward(const Tensor& dout, const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& out,
                                  const Tensor& logsumexp, const SequenceStarts& starts, const AttentionShape& shape, const Tensor& dq,
                                  const Tensor& dk, const Tensor& dv) {
  const int64_t hd = shape.head_dim, group = shape.num_heads / shape.num_kv_heads;
  const float scale = 1.0f / std::sqrt(static_cast<float>(hd));
  const int64_t num_rows = q.rows();
  const auto num_sequences = static_cast<int64_t>(starts.size()) - 1;
  pool_.ParallelFor(num_sequences * shape.num_kv_heads, [&](int64_t task) {
    const int64_t kv = task % shape.num_kv_heads;
    const int64_t first = starts[static_cast<size_t>(task / shape.num_kv_heads)];
    const int64_t length = starts[static_cast<size_t>(task / shape.num_kv_heads) + 1] - first;
    const Panel keys(k, first, length, kv, hd);
    const Tensor keys_t = keys.Transposed();
    const Tensor values_t = Panel(v, first, length, kv, hd).Transposed();
    const Panel dkeys(length, hd), dvalues(length, hd);
    const Tensor weights = Tensor::Empty({kBlock, kBlock}), dweights = Tensor::Empty({kBlock, kBlock});
    for (int64_t head = kv * group; head < (kv + 1) * group; ++head) {
      const Panel queries(q, first, length, head, hd), output(out, first, length, head, hd), doutput(dout, first, length, head, hd);
      const Panel dqueries(length, hd);
      for (int64_t block = 0; block < length; block += kBlock) {
        const int64_t rows = std::min(kBlock, length - block);
        float delta[kBlock];
        for (int64_t r = 0; r < rows; ++r) delta[r] = Dot(output.cols, output.row(block + r), doutput.row(block + r));
        for (int64_t key_block = 0; key_block <= block; key_block += kBlock) {
          weights.Fill(0);
          dweights.Fill(0);
          Multiply(rows, kBlock, keys.cols, queries.row(block), queries.cols, 1, keys_t.f32() + key_block, keys.rows, weights.f32(), kBlock);
          Multiply(rows, kBlock, keys.cols, doutput.row(block), doutput.cols, 1, values_t.f32() + key_block, keys.rows, dweights.f32(),
                   kBlock);
          for (int64_t r = 0; r < rows; ++r) {
            SoftmaxBackwardRow(Visible(block + r, key_block), scale, logsumexp.f32()[head * num_rows + first + block + r], delta[r],
                               weights.f32() + r * kBlock, dweights.f32() + r * kBlock);
          }
          // dv += weights^T dout, dk += dscores^T q, dq += dscores k
          Multiply(kBlock, keys.cols, rows, weights.f32(), 1, kBlock, doutput.row(block), doutput.cols, dvalues.row(key_block), keys.cols);
          Multiply(kBlock, keys.cols, rows, dweights.f32(), 1, kBlock, queries.row(block), queries.cols, dkeys.row(key_block), keys.cols);
          Multiply(rows, keys.cols, kBlock, dweights.f32(), kBlock, 1, keys.row(key_block), keys.cols, dqueries.row(block), keys.cols);
        }
      }
      dqueries.Store(dq, first, length, head, hd);
    }
    dkeys.Store(dk, first, length, kv, hd);
    dvalues.Store(dv, first, length, kv, hd);
  });
}

}  // namespace troupe::engine::cpu
