/// Samples laid end to end: no padding, so a sample's numbers never depend on the others beside it.
#pragma once

#include <memory>
#include <vector>

#include "absl/types/span.h"
#include "engine/data/sample.h"
#include "engine/ops/attention.h"

namespace troupe::engine {

/// Shapes  token_ids: [N]; target_rows, targets: [M]: row target_rows[i] predicts token targets[i]; samples counted in order
struct PackedBatch {
  std::vector<int32_t> token_ids;
  std::shared_ptr<PackedRows> rows;
  std::vector<int32_t> target_rows;
  std::vector<int32_t> targets;
  std::vector<int64_t> target_starts;  ///< sample s has targets [target_starts[s], target_starts[s + 1])
  std::shared_ptr<DropoutRows> dropout;  ///< null in evaluation
};

/// Which tokens to score: those the loss counts, or all but the first.
enum class Targets { kLossMask, kAll };

PackedBatch Pack(absl::Span<const Sample> samples, Targets targets);

}  // namespace troupe::engine
