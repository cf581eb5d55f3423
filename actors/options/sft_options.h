/// The flags of supervised fine-tuning and pretraining, with the names and meanings of ms-swift.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace troupe::actors {

class OptionParser;

/// What a run is asked to do. Fields hold ms-swift's defaults, except where the comment says otherwise.
struct SftOptions {
  // Model. Empty: the one that the repository ships.
  std::string model;
  std::string torch_dtype = "float32";
  std::vector<std::string> adapters;

  // Data. Empty: what the repository ships.
  std::vector<std::string> dataset;
  std::vector<std::string> val_dataset;
  double split_dataset_ratio = 0;
  int64_t max_length = 0;  ///< 0: the model's maximum
  std::string truncation_strategy = "delete";
  bool dataset_shuffle = true;
  bool train_dataloader_shuffle = true;
  bool strict = false;

  // Adapter.
  std::string tuner_type = "lora";
  int64_t lora_rank = 8;
  double lora_alpha = 32;
  double lora_dropout = 0.05;
  bool use_rslora = false;
  std::vector<std::string> target_modules = {"all-linear"};

  // Training.
  double num_train_epochs = 3;
  int64_t max_steps = -1;
  int64_t per_device_train_batch_size = 1;
  int64_t per_device_eval_batch_size = 1;
  int64_t gradient_accumulation_steps = 0;  ///< 0: so that the global batch is 16 (see Resolve)
  double learning_rate = 0;                 ///< 0: 1e-4 for lora, 1e-5 for full
  std::string lr_scheduler_type = "cosine";
  double min_lr = 0;       ///< of cosine_with_min_lr
  double min_lr_rate = 0;  ///< the same as a share of learning_rate
  double warmup_ratio = 0;
  double weight_decay = 0.1;
  double adam_beta1 = 0.9;
  double adam_beta2 = 0.95;
  double adam_epsilon = 1e-8;
  double max_grad_norm = 1;  ///< 0: no clipping
  bool gradient_checkpointing = true;
  int64_t seed = 42;

  // Output.
  std::string output_dir;  ///< empty: output/<name of the model>
  bool add_version = true;
  int64_t logging_steps = 1;  ///< ms-swift: 5
  int64_t save_steps = 500;
  int64_t save_total_limit = 0;  ///< 0: all
  int64_t eval_steps = 0;        ///< 0: save_steps

  // Where it runs.
  std::string mesh;  ///< empty: the launcher's, or 1x1
  bool local = false;
  bool deterministic = false;
  int64_t num_threads = 1;

  bool lora() const { return tuner_type == "lora"; }
};

/// Adds every flag to `parser`, bound to the fields of `options`.
///
/// Lifetime  `options` outlives `parser`.
void DescribeSftOptions(OptionParser* parser, SftOptions* options);

/// Fills in what depends on other options or on the mesh, and checks what no single flag can.
///
///   gradient_accumulation_steps = max(1, ceil(16 / per_device_train_batch_size / data_world_size))
///
/// so that the default global batch is 16 on every mesh whose data-parallel size divides 16 /
/// per_device_train_batch_size.
/// Idempotent on one mesh.
/// Errors  INVALID_ARGUMENT naming both flags and what to change.
absl::Status ResolveSftOptions(SftOptions* options, int data_world_size);

/// Samples of one optimiser step, once resolved.
int64_t GlobalBatchSize(const SftOptions& options, int data_world_size);

}  // namespace troupe::actors
