// Supervised fine-tuning, of a low-rank adapter or (--tuner_type full) of all weights.
//
//   launcher --mesh 2x2 recipes/sft_lora --model DIR --dataset FILE.jsonl
#include "actors/actors.h"

namespace troupe::actors {
namespace {

absl::Status Sft(SftRun& run) {
  // 1. Rows become token ids; only the assistant's tokens count in the loss.
  TROUPE_ASSIGN_OR_RETURN(const SftData data, LoadSftData(run.options()));

  // 2. A trainer on every rank of the mesh, each with its shards of the model and of the adapter.
  TROUPE_ASSIGN_OR_RETURN(const TrainerGroup trainer, TrainerGroup::Spawn(run.job(), run.mesh(), run.trainer_options(),
                                                                          run.options().per_device_train_batch_size));
  BatchLoader loader(data.train, run.loader_options());
  TROUPE_ASSIGN_OR_RETURN(const engine::LrSchedule schedule, run.schedule(loader.num_steps()));
  TROUPE_RETURN_IF_ERROR(run.Begin(trainer, data, loader.num_steps()));
  TROUPE_RETURN_IF_ERROR(run.Evaluate(trainer, data, /*step=*/0));

  // 3. loss = sum over target tokens of -log p / their number in the global batch; clip; AdamW.
  GlobalBatch batch;
  while (!run.interrupted() && loader.Next(&batch)) {
    const double learning_rate = schedule.LearningRate(batch.step - 1);
    TROUPE_ASSIGN_OR_RETURN(const LossSums loss, trainer.ForwardBackward(batch));
    TROUPE_RETURN_IF_ERROR(CheckFinite(batch, loss));
    TROUPE_ASSIGN_OR_RETURN(const StepReport step, trainer.ClipGradAndStep(learning_rate));
    TROUPE_RETURN_IF_ERROR(run.LogStep(batch, loss, step, learning_rate));
    if (run.EvalDue(batch.step)) TROUPE_RETURN_IF_ERROR(run.Evaluate(trainer, data, batch.step));
    if (run.SaveDue(batch.step)) TROUPE_RETURN_IF_ERROR(run.Save(trainer, batch.step));
  }

  // 4. What it has learnt.
  if (!run.interrupted()) TROUPE_RETURN_IF_ERROR(run.Evaluate(trainer, data, batch.step));
  return run.End();
}

}  // namespace
}  // namespace troupe::actors

int main(int argc, char** argv) {
  return troupe::actors::RunSft(argc, argv, "sft_lora", "fine-tunes a language model with LoRA, or all of it", {}, troupe::actors::Sft);
}
