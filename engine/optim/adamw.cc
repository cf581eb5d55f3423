#include "engine/optim/adamw.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "runtime/base/status.h"

namespace troupe::engine {
namespace {

absl::Span<float> Span(const Tensor& t) { return {t.f32(), static_cast<size_t>(t.size())}; }

/// What every rank has for each chunk of each block, in the order of the unsharded parameters, padding left out.
template <typename T>
absl::StatusOr<std::vector<T>> GatherChunks(const std::vector<ParameterBlock*>& blocks, const std::vector<T>& mine, Communicator& fsdp) {
  const auto ranks = static_cast<size_t>(fsdp.size());
  std::vector<T> all(mine.size() * ranks);
  TROUPE_RETURN_IF_ERROR(fsdp.AllGather({reinterpret_cast<const std::byte*>(mine.data()), mine.size() * sizeof(T)},
                                        {reinterpret_cast<std::byte*>(all.data()), all.size() * sizeof(T)}));
  std::vector<T> ordered;
  size_t first = 0;
  for (ParameterBlock* block : blocks) {
    const auto per_rank = static_cast<size_t>(block->trainable().shard_size / kShardChunk);
    const auto used = static_cast<size_t>((block->trainable().size + kShardChunk - 1) / kShardChunk);
    for (size_t i = 0; i < used; ++i) ordered.push_back(all[i / per_rank * mine.size() + first + i % per_rank]);
    first += per_rank;
  }
  return ordered;
}

}  // namespace

AdamW::AdamW(std::vector<ParameterBlock*> blocks, AdamWOptions options, Communicator& fsdp, Device& device)
    : options_(options), fsdp_(&fsdp), device_(&device) {
  for (ParameterBlock* block : blocks) {
    if (block->trainable().size == 0) continue;
    blocks_.push_back(block);
    m_.push_back(Tensor::Zeros({block->trainable().shard_size}));
    v_.push_back(Tensor::Zeros({block->trainable().shard_size}));
  }
}

absl::StatusOr<double> AdamW::GradNorm(const std::vector<Tensor>& gradients) {
  std::vector<double> mine;
  for (const Tensor& gradient : gradients) {
    const size_t first = mine.size();
    mine.resize(first + static_cast<size_t>(gradient.size() / kShardChunk));
    device_->SumsOfSquares(Span(gradient), kShardChunk, absl::MakeSpan(mine).subspan(first));
  }
  TROUPE_ASSIGN_OR_RETURN(const std::vector<double> sums, GatherChunks(blocks_, mine, *fsdp_));
  double total = 0;
  for (double sum : sums) total += sum;
  return std::sqrt(total);
}

absl::StatusOr<uint64_t> AdamW::StateHash() {
  std::vector<uint64_t> mine;
  for (ParameterBlock* block : blocks_) {
    const size_t first = mine.size();
    mine.resize(first + static_cast<size_t>(block->trainable().shard_size / kShardChunk));
    device_->Hashes(Span(block->trainable().shard), kShardChunk, absl::MakeSpan(mine).subspan(first));
  }
  TROUPE_ASSIGN_OR_RETURN(const std::vector<uint64_t> hashes, GatherChunks(blocks_, mine, *fsdp_));
  uint64_t hash = 0;
  for (uint64_t h : hashes) hash = std::rotl((hash ^ h) * 0x9FB21C651E98DF25ull, 31);
  return hash;
}

absl::StatusOr<StepResult> AdamW::Step(const std::vector<Tensor>& gradients, double learning_rate) {
  TROUPE_CHECK_EQ(gradients.size(), blocks_.size());
  StepResult result;
  TROUPE_ASSIGN_OR_RETURN(result.grad_norm, GradNorm(gradients));
  AdamWStep step{.learning_rate = learning_rate, .beta1 = options_.beta1, .beta2 = options_.beta2, .eps = options_.eps};
  step.step = ++step_;
  step.grad_scale = options_.max_grad_norm > 0 ? std::min(1.0, options_.max_grad_norm / (result.grad_norm + 1e-6)) : 1.0;
  for (size_t b = 0; b < blocks_.size(); ++b) {
    FlatParameters& flat = blocks_[b]->trainable();
    const int64_t shard_begin = flat.shard_size * fsdp_->rank(), shard_end = shard_begin + flat.shard_size;
    for (size_t i = 0; i < flat.parameters.size(); ++i) {
      const ParameterSpec& spec = flat.parameters[i]->spec();
      const int64_t begin = std::max(shard_begin, flat.offsets[i]);
      const int64_t end = std::min(shard_end, flat.offsets[i] + NumElements(spec.shape));
      if (begin >= end) continue;
      step.weight_decay = spec.decay ? options_.weight_decay : 0.0;
      const auto from = static_cast<size_t>(begin - shard_begin), count = static_cast<size_t>(end - begin);
      device_->AdamW(step, Span(gradients[b]).subspan(from, count), Span(flat.shard).subspan(from, count),
                     Span(m_[b]).subspan(from, count), Span(v_[b]).subspan(from, count));
    }
    blocks_[b]->WeightsChanged();
  }
  TROUPE_ASSIGN_OR_RETURN(result.state_hash, StateHash());
  return result;
}

}  // namespace troupe::engine
