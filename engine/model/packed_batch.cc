#include "engine/model/packed_batch.h"

namespace troupe::engine {

PackedBatch Pack(absl::Span<const Sample> samples, Targets targets) {
  PackedBatch batch;
  batch.rows = std::make_shared<PackedRows>();
  batch.rows->starts.push_back(0);
  batch.target_starts.push_back(0);
  for (const Sample& sample : samples) {
    const auto first = static_cast<int32_t>(batch.token_ids.size());
    for (size_t t = 0; t < sample.token_ids.size(); ++t) {
      batch.token_ids.push_back(sample.token_ids[t]);
      batch.rows->positions.push_back(static_cast<int32_t>(t));
      if (t > 0 && (targets == Targets::kAll || sample.loss_mask[t] != 0)) {
        batch.target_rows.push_back(first + static_cast<int32_t>(t) - 1);
        batch.targets.push_back(sample.token_ids[t]);
      }
    }
    batch.rows->starts.push_back(static_cast<int64_t>(batch.token_ids.size()));
    batch.target_starts.push_back(static_cast<int64_t>(batch.targets.size()));
  }
  return batch;
}

}  // namespace troupe::engine
