#include "actors/trainer/trainer_group.h"

#include <algorithm>

#include "engine/io/atomic_directory.h"
#include "runtime/base/status.h"
#include "runtime/mesh/microbatch_tree.h"

namespace troupe::actors {
namespace collect = runtime::collect;
namespace dispatch = runtime::dispatch;

namespace {

SampleMessage ToMessage(const engine::Sample& sample) { return {sample.token_ids, sample.loss_mask}; }

void AddTo(LossSums& sums, const ScoreMessage& score) {
  sums.loss_sum += score.loss_sum;
  sums.num_targets += score.num_targets;
  sums.num_correct += score.num_correct;
}

/// The micro-batches of a rank, by its accumulation steps.
runtime::DispatchRule ByMicroBatchPlan(const runtime::DeviceMesh& mesh, const runtime::MicroBatchPlan& plan) {
  return dispatch::Fn([mesh, plan](int, int rank) {
    std::vector<int> rows;
    for (int64_t step = 0; step < plan.Steps(); ++step) {
      rows.push_back(static_cast<int>(plan.MicroBatch({mesh.coordinate("dp", rank), mesh.coordinate("fsdp", rank), step})));
    }
    return rows;
  });
}

}  // namespace

absl::StatusOr<TrainerGroup> TrainerGroup::Spawn(runtime::Job& job, const runtime::DeviceMesh& mesh, const TrainerOptions& options,
                                                 int64_t per_device_batch_size) {
  TROUPE_ASSIGN_OR_RETURN(runtime::ActorGroup<Trainer> group,
                          runtime::ActorGroup<Trainer>::Spawn(job, mesh, {.name = "trainer"}, options));
  return TrainerGroup(std::move(group), per_device_batch_size);
}

absl::StatusOr<std::vector<ModelInfo>> TrainerGroup::Info() const {
  return group_.Call<&Trainer::Info>(dispatch::All(), collect::None()).Get(kTrainerTimeout);
}

absl::StatusOr<LossSums> TrainerGroup::ForwardBackward(const GlobalBatch& batch) const {
  const runtime::DeviceMesh& mesh = group_.mesh();
  const int64_t rows = static_cast<int64_t>(batch.samples.size());
  const int64_t world = mesh.data_world_size();
  // The last batch of an epoch may be short: micro-batches that are short or empty fill the mesh.
  const int64_t needed = std::max<int64_t>(1, (rows + per_device_batch_size_ - 1) / per_device_batch_size_);
  const int64_t num_micro_batches = std::max(batch.num_micro_batches, (needed + world - 1) / world * world);
  std::vector<MicroBatchMessage> micro_batches(static_cast<size_t>(num_micro_batches));
  for (int64_t m = 0; m < num_micro_batches; ++m) {
    MicroBatchMessage& message = micro_batches[static_cast<size_t>(m)];
    message.first_sample = static_cast<uint64_t>(m * per_device_batch_size_);
    for (int64_t i = m * per_device_batch_size_; i < std::min(rows, (m + 1) * per_device_batch_size_); ++i) {
      message.samples.push_back(ToMessage(batch.samples[static_cast<size_t>(i)]));
    }
  }
  TROUPE_ASSIGN_OR_RETURN(const runtime::MicroBatchPlan plan,
                          runtime::MicroBatchPlan::Create(num_micro_batches, {mesh.dim("dp"), mesh.dim("fsdp")}));
  TROUPE_ASSIGN_OR_RETURN(const std::vector<MicroBatchScores> scores,
                          group_.Call<&Trainer::ForwardBackward>(ByMicroBatchPlan(mesh, plan), collect::Flatten(), micro_batches,
                                                                 std::max<int64_t>(1, batch.num_targets))
                              .Get(kTrainerTimeout));
  LossSums sums;
  for (const MicroBatchScores& micro_batch : scores) {
    for (const ScoreMessage& score : micro_batch.samples) AddTo(sums, score);
  }
  return sums;
}

absl::StatusOr<StepReport> TrainerGroup::ClipGradAndStep(double learning_rate) const {
  TROUPE_ASSIGN_OR_RETURN(
      std::vector<StepReport> reports,
      group_.Call<&Trainer::ClipGradAndStep>(dispatch::All(), collect::None(), learning_rate).Get(kTrainerTimeout));
  StepReport result = reports.front();
  for (size_t rank = 0; rank < reports.size(); ++rank) {
    const StepReport& report = reports[rank];
    const bool same_norm = report.grad_norm == result.grad_norm || (report.grad_norm != report.grad_norm && result.grad_norm != result.grad_norm);
    if (report.state_hash != result.state_hash || !same_norm) {
      return absl::DataLossError(absl::StrCat("rank ", rank, " has weights ", absl::Hex(report.state_hash), " and gradient norm ",
                                              report.grad_norm, ", rank 0 ", absl::Hex(result.state_hash), " and ", result.grad_norm,
                                              ": replicas must agree; do all hosts have the same instruction set?"));
    }
    result.memory_gib = std::max(result.memory_gib, report.memory_gib);
  }
  return result;
}

absl::StatusOr<std::vector<ScoreMessage>> TrainerGroup::Score(const std::vector<engine::Sample>& samples, bool all_targets,
                                                              bool with_logps) const {
  std::vector<SampleMessage> messages;
  for (const engine::Sample& sample : samples) messages.push_back(ToMessage(sample));
  // As many forward passes as the largest slice needs, on every rank: each holds collectives.
  constexpr int64_t kSamplesPerCall = 8;
  const int64_t slice = (static_cast<int64_t>(samples.size()) + group_.mesh().data_world_size() - 1) / group_.mesh().data_world_size();
  const int64_t num_calls = (slice + kSamplesPerCall - 1) / kSamplesPerCall;
  return group_.Call<&Trainer::Evaluate>(dispatch::SliceDp(), collect::Flatten(), messages, num_calls, all_targets, with_logps)
      .Get(kTrainerTimeout);
}

absl::StatusOr<LossSums> TrainerGroup::Evaluate(const engine::Dataset& dataset) const {
  LossSums sums;
  constexpr size_t kSamplesPerRound = 1024;
  for (size_t begin = 0; begin < dataset.size(); begin += kSamplesPerRound) {
    std::vector<engine::Sample> samples;
    for (size_t i = begin; i < std::min(dataset.size(), begin + kSamplesPerRound); ++i) samples.push_back(dataset.Get(i));
    TROUPE_ASSIGN_OR_RETURN(const std::vector<ScoreMessage> scores, Score(samples, /*all_targets=*/false, /*with_logps=*/false));
    for (const ScoreMessage& score : scores) AddTo(sums, score);
  }
  return sums;
}

absl::Status TrainerGroup::Save(const std::string& directory) const {
  TROUPE_ASSIGN_OR_RETURN(engine::AtomicDirectory target, engine::AtomicDirectory::Create(directory));
  TROUPE_RETURN_IF_ERROR(group_.Call<&Trainer::Save>(dispatch::All(), collect::None(), target.path()).Get(kTrainerTimeout));
  return target.Commit();
}

}  // namespace troupe::actors
