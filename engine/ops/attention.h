/// Causal self-attention with rotary positions and grouped key and value heads.
#pragma once

#include "engine/autograd/tape.h"
#include "engine/model/config.h"

namespace troupe::engine {

/// Cosines and sines of every position and frequency.
///
///   f[i] = theta^(-2 i / head_dim), stretched as the config says;  cos[p, i] = cos(p f[i])
///
/// Shapes  cos, sin: [max_position, head_dim / 2]
/// Source  Su et al. 2021, arXiv:2104.09864; Llama 3.1's scaling as in transformers
struct RopeTable {
  RopeTable() = default;
  RopeTable(const DecoderConfig& config, int64_t max_position);
  Tensor cos, sin;
};

/// Where the rows of a packed batch lie.
struct PackedRows {
  std::vector<int32_t> positions;  ///< [N]
  SequenceStarts starts;
};

/// Rotates both halves of every head: (a, b) -> (a cos - b sin, b cos + a sin).
///
/// Shapes  x, y: [N, H head_dim]
Variable Rope(Tape& tape, const Variable& x, const std::shared_ptr<const PackedRows>& rows, const std::shared_ptr<const RopeTable>& table);

/// out[n] = sum_j softmax_j(q[n] k[j] / sqrt(head_dim)) v[j] over j <= n of the same sequence, a head at a time.
///
/// Shapes  q, out: [N, H head_dim]; k, v: [N, KV head_dim]; query head h uses key head h KV / H
/// Saves   q, k, v, out, the logarithm of each row's sum: [H, N]; never T x T
/// Source  Dao et al. 2022, arXiv:2205.14135; Ainslie et al. 2023, arXiv:2305.13245 (GQA)
Variable Attention(Tape& tape, const Variable& q, const Variable& k, const Variable& v, const std::shared_ptr<const PackedRows>& rows,
                   const AttentionShape& shape);

}  // namespace troupe::engine
