/// Folds an adapter into the weights that it adapts.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "engine/tensor/dtype.h"

namespace troupe::engine {

/// W[o, i] += s sum_r B[o, r] A[r, i]
///
/// Shapes  w: [out, in]; a: [rank, in]; b: [out, rank]
/// Dtype   f32; the sum over r is taken first, as PEFT does
void MergeLora(absl::Span<const float> a, absl::Span<const float> b, int64_t rank, float scaling, absl::Span<float> w);

struct MergeOptions {
  std::string model;       ///< folder in Hugging Face layout
  std::string adapters;    ///< folder in PEFT layout; empty: the weights are only written again
  std::string output_dir;
  std::string dtype;       ///< "float32", "bfloat16", "float16"; empty: the dtype of each tensor in the file
  uint64_t max_shard_bytes = 5'000'000'000;
};

/// Writes a model with the adapter merged in, its config.json and the tokenizer's files; one tensor at a time is in memory.
///
/// Errors  of the files; FAILED_PRECONDITION when output_dir holds anything but an older model, or is the model itself
absl::Status WriteMergedModel(const MergeOptions& options);

}  // namespace troupe::engine
