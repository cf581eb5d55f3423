// Pretraining from random weights: the model folder holds config.json and a tokenizer, the data is `text` rows (or any other form).
//
//   launcher --mesh 2x1 recipes/pretrain --model DIR --dataset FILE.jsonl
#include "actors/actors.h"

namespace troupe::actors {
namespace {

absl::Status Pretrain(SftRun& run) {
  // 1. Text becomes token ids; every token but the first is a target.
  TROUPE_ASSIGN_OR_RETURN(const SftData data, LoadSftData(run.options()));

  // 2. A trainer on every rank; weights are drawn from the seed, each rank its own shards.
  TrainerOptions trainer_options = run.trainer_options();
  trainer_options.random_weights = true;
  TROUPE_ASSIGN_OR_RETURN(const TrainerGroup trainer, TrainerGroup::Spawn(run.job(), run.mesh(), trainer_options,
                                                                          run.options().per_device_train_batch_size));
  BatchLoader loader(data.train, run.loader_options());
  TROUPE_ASSIGN_OR_RETURN(const engine::LrSchedule schedule, run.schedule(loader.num_steps()));
  TROUPE_RETURN_IF_ERROR(run.Begin(trainer, data, loader.num_steps()));

  // 3. loss = mean over the tokens of the global batch of -log p; clip; AdamW.
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
  if (!run.interrupted()) TROUPE_RETURN_IF_ERROR(run.Evaluate(trainer, data, batch.step));
  return run.End();
}

}  // namespace
}  // namespace troupe::actors

int main(int argc, char** argv) {
  troupe::actors::SftOptions defaults;
  defaults.tuner_type = "full";
  defaults.learning_rate = 1e-3;
  return troupe::actors::RunSft(argc, argv, "pretrain", "trains a language model from random weights", defaults, troupe::actors::Pretrain);
}
