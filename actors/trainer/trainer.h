/// The actor that trains: one rank's shards of a model, its optimiser, and the collectives that bind the ranks.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "actors/trainer/trainer_messages.h"
#include "runtime/actor/actor.h"

namespace troupe::actors {

/// One rank of a trainer group. All ranks make the same calls; each returns when its collectives have.
///
/// Errors  of files, by name; of collectives, naming rank and operation
class Trainer {
 public:
  /// Loads this rank's shards of `options.model`, and the adapter when there is one to start from.
  static absl::StatusOr<std::unique_ptr<Trainer>> Create(runtime::ActorContext& context, const TrainerOptions& options);
  ~Trainer();

  ModelInfo Info();
  /// The micro-batches of this rank, in the order of its accumulation steps; one result for each.
  absl::StatusOr<std::vector<MicroBatchScores>> ForwardBackward(const std::vector<MicroBatchMessage>& micro_batches, int64_t num_targets);
  absl::StatusOr<StepReport> ClipGradAndStep(double learning_rate);
  /// Scores of this rank's samples in `num_calls` forward passes, the same number on every rank.
  absl::StatusOr<std::vector<ScoreMessage>> Evaluate(const std::vector<SampleMessage>& samples, int64_t num_calls, bool all_targets,
                                                     bool with_logps);
  /// Rank 0 writes `directory` (which must be there already), all ranks give it their shards: an adapter in PEFT's layout, or
  /// the whole model in Hugging Face's.
  absl::Status Save(const std::string& directory);

 private:
  struct State;
  explicit Trainer(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

TROUPE_ACTOR(Trainer, &Trainer::Info, &Trainer::ForwardBackward, &Trainer::ClipGradAndStep, &Trainer::Evaluate, &Trainer::Save);

}  // namespace troupe::actors
