/// A model in training on one rank: forward and backward over micro-batches, then one optimiser step.
#pragma once

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/fsdp/gradient_tree.h"
#include "engine/model/decoder.h"
#include "engine/optim/adamw.h"

namespace troupe::engine {

/// What the model made of one sample.
struct SampleScore {
  double loss_sum = 0;      ///< sum over targets of -log p
  int64_t num_targets = 0;
  int64_t num_correct = 0;  ///< targets with the largest logit
  std::vector<float> logps;  ///< of every target; only when asked for
};

/// The samples of one micro-batch and where they stand in the global batch of this step.
struct MicroBatch {
  std::vector<Sample> samples;
  uint64_t first_sample = 0;  ///< place of the first sample in the global batch
};

/// Threads  one caller at a time; all ranks of the mesh make the same calls
class TrainingModel {
 public:
  TrainingModel(std::unique_ptr<Decoder> decoder, AdamWOptions optimizer, Communicator& fsdp, Communicator& dp, uint64_t seed);

  Decoder& decoder() { return *decoder_; }

  /// loss = sum over the targets of the global batch of -log p / `num_targets`, its gradients summed over all micro-batches.
  ///
  /// Blocking on collectives
  absl::StatusOr<std::vector<SampleScore>> ForwardBackward(const std::vector<MicroBatch>& micro_batches, int64_t num_targets);
  /// Clips the gradients and steps the optimiser.
  absl::StatusOr<StepResult> ClipGradAndStep(double learning_rate);
  /// Scores without gradients; ranks pass any number of samples each, but all ranks the same number of calls.
  absl::StatusOr<std::vector<SampleScore>> ForwardOnly(const std::vector<Sample>& samples, Targets targets, bool with_logps);

  absl::StatusOr<uint64_t> StateHash() { return optimizer_.StateHash(); }

 private:
  std::unique_ptr<Decoder> decoder_;
  AdamW optimizer_;
  GradientTree gradients_;
  uint64_t seed_;
};

/// A base weight: normal with the config's initializer_range; norms 1, biases 0.
WeightReader RandomWeights(const DecoderConfig& config, uint64_t seed);
/// A fresh adapter as in PEFT: A uniform in +-1 / sqrt(in) (kaiming_uniform with a = sqrt 5), B zero.
WeightReader FreshAdapter(uint64_t seed);

}  // namespace troupe::engine
