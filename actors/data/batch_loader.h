/// Deals the rows of a dataset into global batches, one an optimiser step, in an order that depends on the seed alone.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/data/dataset.h"

namespace troupe::actors {

/// The samples of one optimiser step.
struct GlobalBatch {
  int64_t step = 0;       ///< from 1
  double epoch = 0;       ///< epochs done after this step
  std::vector<engine::Sample> samples;
  int64_t num_targets = 0;  ///< tokens that the loss counts
  int64_t num_micro_batches = 0;  ///< to cut it into at least, so that a short batch adds along the same tree on every mesh
  int64_t num_tokens = 0;
};

struct BatchLoaderOptions {
  int64_t global_batch_size = 16;
  double num_epochs = 1;
  int64_t max_steps = -1;  ///< overrides num_epochs when positive
  int64_t num_micro_batches = 1;  ///< of a global batch
  bool shuffle = true;     ///< anew each epoch
  uint64_t seed = 42;
};

/// Batch s of epoch e holds rows perm_e[s B : (s + 1) B]; the last of an epoch may be short.
class BatchLoader {
 public:
  /// Lifetime  `dataset` outlives this
  BatchLoader(const engine::Dataset& dataset, BatchLoaderOptions options);

  int64_t num_steps() const { return num_steps_; }
  /// Moves to the next batch.  False when all steps are done.
  bool Next(GlobalBatch* batch);

 private:
  std::vector<int64_t> OrderOf(int64_t epoch) const;

  const engine::Dataset* dataset_;
  BatchLoaderOptions options_;
  int64_t steps_per_epoch_, num_steps_;
  int64_t step_ = 0;
  int64_t order_epoch_ = -1;
  std::vector<int64_t> order_;
};

}  // namespace troupe::actors
