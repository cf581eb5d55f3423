#include "actors/data/batch_loader.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "engine/data/shuffle.h"
#include "runtime/base/check.h"

namespace troupe::actors {

BatchLoader::BatchLoader(const engine::Dataset& dataset, BatchLoaderOptions options) : dataset_(&dataset), options_(options) {
  const auto rows = static_cast<int64_t>(dataset.size());
  TROUPE_CHECK_GT(rows, 0);
  TROUPE_CHECK_GT(options.global_batch_size, 0);
  steps_per_epoch_ = (rows + options.global_batch_size - 1) / options.global_batch_size;
  num_steps_ = options.max_steps > 0
                   ? options.max_steps
                   : static_cast<int64_t>(std::ceil(options.num_epochs * static_cast<double>(steps_per_epoch_)));
}

std::vector<int64_t> BatchLoader::OrderOf(int64_t epoch) const {
  if (options_.shuffle) {
    return engine::Permutation(dataset_->size(),
                               engine::Philox(options_.seed, engine::RandomPurpose::kShuffle, static_cast<uint64_t>(epoch)));
  }
  std::vector<int64_t> order(dataset_->size());
  std::iota(order.begin(), order.end(), 0);
  return order;
}

bool BatchLoader::Next(GlobalBatch* batch) {
  if (step_ >= num_steps_) return false;
  const int64_t epoch = step_ / steps_per_epoch_;
  if (epoch != order_epoch_) {
    order_ = OrderOf(epoch);
    order_epoch_ = epoch;
  }
  const int64_t begin = step_ % steps_per_epoch_ * options_.global_batch_size;
  const int64_t end = std::min(begin + options_.global_batch_size, static_cast<int64_t>(order_.size()));
  *batch = GlobalBatch{};
  for (int64_t i = begin; i < end; ++i) {
    batch->samples.push_back(dataset_->Get(static_cast<size_t>(order_[static_cast<size_t>(i)])));
    const engine::Sample& sample = batch->samples.back();
    batch->num_tokens += static_cast<int64_t>(sample.token_ids.size());
    batch->num_targets += std::count(sample.loss_mask.begin(), sample.loss_mask.end(), uint8_t{1});
  }
  batch->num_micro_batches = options_.num_micro_batches;
  batch->step = ++step_;
  batch->epoch = static_cast<double>(step_) / static_cast<double>(steps_per_epoch_);
  return true;
}

}  // namespace troupe::actors
