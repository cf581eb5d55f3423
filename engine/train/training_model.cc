#include "engine/train/training_model.h"

#include <cmath>

#include "engine/random/philox.h"
#include "runtime/base/status.h"

namespace troupe::engine {
namespace {

std::vector<ParameterBlock*> Blocks(const Decoder& decoder) {
  std::vector<ParameterBlock*> blocks;
  for (const std::unique_ptr<ParameterBlock>& block : decoder.blocks()) blocks.push_back(block.get());
  return blocks;
}

/// Sums over each sample's targets in their order, in double.
std::vector<SampleScore> ScoreSamples(const PackedBatch& batch, const TokenScores& scores, bool with_logps) {
  std::vector<SampleScore> samples;
  for (size_t s = 0; s + 1 < batch.target_starts.size(); ++s) {
    SampleScore score;
    for (auto i = static_cast<size_t>(batch.target_starts[s]); i < static_cast<size_t>(batch.target_starts[s + 1]); ++i) {
      score.loss_sum -= static_cast<double>(scores.logps[i]);
      score.num_correct += scores.is_argmax[i];
      ++score.num_targets;
      if (with_logps) score.logps.push_back(scores.logps[i]);
    }
    samples.push_back(std::move(score));
  }
  return samples;
}

std::shared_ptr<DropoutRows> RowsForDropout(const PackedBatch& batch, uint64_t seed, uint64_t step, uint64_t first_sample) {
  auto rows = std::make_shared<DropoutRows>();
  rows->seed = seed;
  rows->step = step;
  rows->positions = batch.rows->positions;
  for (size_t s = 0; s + 1 < batch.rows->starts.size(); ++s) {
    rows->samples.resize(static_cast<size_t>(batch.rows->starts[s + 1]), first_sample + s);
  }
  return rows;
}

uint64_t HashName(const std::string& name) {
  uint64_t hash = 0xcbf29ce484222325ull;
  for (char c : name) hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001b3ull;
  return hash;
}

bool EndsWith(const std::string& text, const std::string& end) {
  return text.size() >= end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}

}  // namespace

TrainingModel::TrainingModel(std::unique_ptr<Decoder> decoder, AdamWOptions optimizer, Communicator& fsdp, Communicator& dp, uint64_t seed)
    : decoder_(std::move(decoder)),
      optimizer_(Blocks(*decoder_), optimizer, fsdp, decoder_->device()),
      gradients_(Blocks(*decoder_), dp, decoder_->device()),
      seed_(seed) {}

absl::StatusOr<std::vector<SampleScore>> TrainingModel::ForwardBackward(const std::vector<MicroBatch>& micro_batches,
                                                                       int64_t num_targets) {
  std::vector<SampleScore> all;
  gradients_.Begin(static_cast<int64_t>(micro_batches.size()));
  for (const MicroBatch& micro_batch : micro_batches) {
    PackedBatch batch = Pack(micro_batch.samples, Targets::kLossMask);
    batch.dropout = RowsForDropout(batch, seed_, static_cast<uint64_t>(optimizer_.step()), micro_batch.first_sample);
    Tape tape(decoder_->device(), /*recording=*/true);
    auto dlogps = std::make_shared<std::vector<float>>(batch.targets.size(), -1.0f / static_cast<float>(num_targets));
    TROUPE_ASSIGN_OR_RETURN(const TokenScores scores, decoder_->Forward(tape, batch, dlogps));
    TROUPE_RETURN_IF_ERROR(tape.Backward());
    TROUPE_RETURN_IF_ERROR(gradients_.Add());
    for (SampleScore& score : ScoreSamples(batch, scores, /*with_logps=*/false)) all.push_back(std::move(score));
  }
  return all;
}

absl::StatusOr<StepResult> TrainingModel::ClipGradAndStep(double learning_rate) {
  return optimizer_.Step(gradients_.gradients(), learning_rate);
}

absl::StatusOr<std::vector<SampleScore>> TrainingModel::ForwardOnly(const std::vector<Sample>& samples, Targets targets, bool with_logps) {
  const PackedBatch batch = Pack(samples, targets);
  Tape tape(decoder_->device(), /*recording=*/false);
  TROUPE_ASSIGN_OR_RETURN(const TokenScores scores, decoder_->Forward(tape, batch, nullptr));
  return ScoreSamples(batch, scores, with_logps);
}

WeightReader RandomWeights(const DecoderConfig& config, uint64_t seed) {
  return [seed, std = static_cast<float>(config.initializer_range)](const ParameterSpec& spec, int64_t begin, int64_t count, float* values) {
    const Philox philox(seed, RandomPurpose::kInit, HashName(spec.name));
    for (int64_t i = 0; i < count; ++i) {
      values[i] = EndsWith(spec.name, "norm.weight") ? 1.0f
                  : EndsWith(spec.name, ".bias")     ? 0.0f
                                                     : std * philox.Normal(static_cast<uint64_t>(begin + i));
    }
    return absl::OkStatus();
  };
}

WeightReader FreshAdapter(uint64_t seed) {
  return [seed](const ParameterSpec& spec, int64_t begin, int64_t count, float* values) {
    const Philox philox(seed, RandomPurpose::kLoraInit, HashName(spec.name));
    const float bound = 1.0f / std::sqrt(static_cast<float>(spec.shape[1]));
    for (int64_t i = 0; i < count; ++i) {
      const float u = philox.Uniform(static_cast<uint64_t>(begin + i));
      values[i] = EndsWith(spec.name, "lora_B.weight") ? 0.0f : (2.0f * u - 1.0f) * bound;
    }
    return absl::OkStatus();
  };
}

}  // namespace troupe::engine
