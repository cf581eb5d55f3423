/// Trainers on every rank of a mesh, driven as one model.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "actors/data/batch_loader.h"
#include "actors/trainer/trainer.h"
#include "runtime/group/actor_group.h"

namespace troupe::actors {

/// Sums over samples, in the order of the dataset, so that they do not depend on the mesh.
struct LossSums {
  double loss_sum = 0;
  int64_t num_targets = 0;
  int64_t num_correct = 0;
  double loss() const { return loss_sum / static_cast<double>(num_targets > 0 ? num_targets : 1); }
  double token_acc() const { return static_cast<double>(num_correct) / static_cast<double>(num_targets > 0 ? num_targets : 1); }
};

/// How long one call on the group may take.
constexpr absl::Duration kTrainerTimeout = absl::Hours(1);

class TrainerGroup {
 public:
  /// Every rank loads its shards.  Errors  of the files, naming them, with the rank that met them
  static absl::StatusOr<TrainerGroup> Spawn(runtime::Job& job, const runtime::DeviceMesh& mesh, const TrainerOptions& options,
                                            int64_t per_device_batch_size);

  /// One result a rank.
  absl::StatusOr<std::vector<ModelInfo>> Info() const;
  /// loss = sum over targets of -log p / number of targets, over the whole global batch; gradients stay with the ranks.
  ///
  /// The batch is cut into micro-batches of per_device_batch_size, dealt so that gradients add along one tree on every mesh.
  absl::StatusOr<LossSums> ForwardBackward(const GlobalBatch& batch) const;
  /// Clips, steps, and checks that replicas agree.
  ///
  /// Errors  DATA_LOSS when two ranks report different weights or norms, naming them
  absl::StatusOr<StepReport> ClipGradAndStep(double learning_rate) const;
  /// Scores `samples` without gradients: `all_targets` every token but the first, else what the loss counts.
  absl::StatusOr<std::vector<ScoreMessage>> Score(const std::vector<engine::Sample>& samples, bool all_targets, bool with_logps) const;
  absl::StatusOr<LossSums> Evaluate(const engine::Dataset& dataset) const;
  /// The adapter in PEFT's layout, or the model in Hugging Face's, into a directory that appears whole or not at all.
  absl::Status Save(const std::string& directory) const;

 private:
  TrainerGroup(runtime::ActorGroup<Trainer> group, int64_t per_device_batch_size)
      : group_(std::move(group)), per_device_batch_size_(per_device_batch_size) {}

  runtime::ActorGroup<Trainer> group_;
  int64_t per_device_batch_size_;
};

}  // namespace troupe::actors
