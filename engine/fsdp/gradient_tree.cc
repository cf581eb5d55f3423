#include "engine/fsdp/gradient_tree.h"

#include "runtime/base/status.h"

namespace troupe::engine {

GradientTree::GradientTree(const std::vector<ParameterBlock*>& blocks, Communicator& dp, Device& device) : dp_(&dp), device_(&device) {
  for (ParameterBlock* block : blocks) {
    if (block->trainable().size > 0) blocks_.push_back(block);
  }
}

void GradientTree::Begin(int64_t micro_batches) {
  TROUPE_CHECK_GT(micro_batches, 0);
  expected_ = micro_batches;
  added_ = 0;
  group_ = micro_batches & -micro_batches;  // the largest power of two that divides it
  levels_.clear();
  total_.clear();
}

void GradientTree::AddInto(const Gradients& from, Gradients& to) {
  for (size_t i = 0; i < from.size(); ++i) device_->AddScaled(from[i], 1.0f, to[i]);
}

absl::Status GradientTree::Add() {
  TROUPE_CHECK_LT(added_, expected_);
  Gradients sum;
  for (ParameterBlock* block : blocks_) {
    sum.push_back(block->trainable().shard_grad);
    block->trainable().shard_grad = Tensor::Empty({block->trainable().shard_size});
  }
  size_t level = 0;
  for (; level < levels_.size() && !levels_[level].empty(); ++level) {
    AddInto(sum, levels_[level]);
    sum = std::move(levels_[level]);
    levels_[level].clear();
  }
  if (levels_.size() <= level) levels_.resize(level + 1);
  levels_[level] = std::move(sum);
  if (++added_ % group_ != 0) return absl::OkStatus();

  sum = std::move(levels_.back());
  levels_.clear();
  for (const Tensor& gradient : sum) {
    TROUPE_RETURN_IF_ERROR(dp_->AllReduce({gradient.f32(), static_cast<size_t>(gradient.size())}));
  }
  if (total_.empty()) {
    total_ = std::move(sum);
  } else {
    AddInto(sum, total_);
  }
  return absl::OkStatus();
}

const std::vector<Tensor>& GradientTree::gradients() const {
  TROUPE_CHECK_EQ(added_, expected_);
  return total_;
}

}  // namespace troupe::engine
