/// One run of a fine-tuning recipe: its options, its cluster, and everything it shows and writes.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "actors/data/batch_loader.h"
#include "actors/data/sft_data.h"
#include "actors/options/sft_options.h"
#include "actors/trainer/trainer_group.h"
#include "engine/optim/lr_schedule.h"
#include "runtime/job/job.h"

namespace troupe::actors {

/// Threads  the recipe's only
class SftRun {
 public:
  ~SftRun();

  const SftOptions& options() const;
  runtime::Job& job() const;
  const runtime::DeviceMesh& mesh() const;
  /// Ctrl-C was pressed: finish the step, save, return.
  bool interrupted() const;

  TrainerOptions trainer_options() const;
  BatchLoaderOptions loader_options() const;
  absl::StatusOr<engine::LrSchedule> schedule(int64_t total_steps) const;

  /// Shows what is placed where and the first sample with its loss mask.
  absl::Status Begin(const TrainerGroup& trainer, const SftData& data, int64_t total_steps);
  /// Logs the step, redraws progress.
  absl::Status LogStep(const GlobalBatch& batch, const LossSums& loss, const StepReport& step, double learning_rate);
  /// Scores the evaluation set when there is one and logs it; `step` 0 is the model as it was.
  absl::Status Evaluate(const TrainerGroup& trainer, const SftData& data, int64_t step);
  bool EvalDue(int64_t step) const;
  bool SaveDue(int64_t step) const;
  /// Writes checkpoint-N, and removes the oldest beyond --save_total_limit.
  absl::Status Save(const TrainerGroup& trainer, int64_t step);
  /// The curve, and where the results lie.
  absl::Status End();

 private:
  friend int RunSft(int, char**, const std::string&, const std::string&, const SftOptions&, const std::function<absl::Status(SftRun&)>&);
  struct State;
  explicit SftRun(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

/// Stops a run whose loss is not a number.
///
/// Errors  INTERNAL naming the step and the rows of the dataset in its batch
absl::Status CheckFinite(const GlobalBatch& batch, const LossSums& loss);

/// The whole `main` of a recipe: flags, cluster or local mode, Ctrl-C, exit status (0; 1: an error; 2: flags; 130: Ctrl-C).
///
/// In a process that was started as a worker it serves actors instead.
int RunSft(int argc, char** argv, const std::string& name, const std::string& summary, const SftOptions& defaults,
           const std::function<absl::Status(SftRun&)>& recipe);

}  // namespace troupe::actors
