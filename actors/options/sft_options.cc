#include "actors/options/sft_options.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "actors/options/option_parser.h"
#include "actors/options/option_value.h"
#include "runtime/base/check.h"

namespace troupe::actors {

namespace {

constexpr int64_t kDefaultGlobalBatch = 16;

/// The last part of a path.
std::string BaseName(const std::string& path) {
  const std::vector<std::string> parts = absl::StrSplit(path, '/', absl::SkipEmpty());
  return parts.empty() ? std::string() : parts.back();
}

}  // namespace

void DescribeSftOptions(OptionParser* parser, SftOptions* o) {
  OptionParser& p = *parser;
  p.Group("model");
  p.Add("model", &o->model, "folder in Hugging Face layout").DefaultText("the model that is shipped, troupe-tiny");
  p.Add("torch_dtype", &o->torch_dtype, "of weights and arithmetic").OneOf({"float32", "bfloat16"});
  p.Add("adapters", &o->adapters, "folder of adapters in PEFT layout to start from");

  p.Group("data");
  p.Add("dataset", &o->dataset, "JSONL files").DefaultText("the arithmetic problems that are shipped");
  p.Add("val_dataset", &o->val_dataset, "JSONL files to evaluate on");
  p.Add("split_dataset_ratio", &o->split_dataset_ratio, "share of the dataset that is kept for evaluation")
      .Min(0)
      .Below(1);
  p.Add("max_length", &o->max_length, "longest sample, in tokens").Min(0).DefaultText("the model's maximum");
  p.Add("truncation_strategy", &o->truncation_strategy, "what happens to longer samples")
      .OneOf({"delete", "left", "right", "raise"});
  p.Add("dataset_shuffle", &o->dataset_shuffle, "shuffle the rows once, before the split");
  p.Add("train_dataloader_shuffle", &o->train_dataloader_shuffle, "shuffle the rows anew in every epoch");
  p.Add("strict", &o->strict, "stop at a bad row instead of skipping and counting it");

  p.Group("adapter");
  p.Add("tuner_type", &o->tuner_type, "train adapters or all weights").OneOf({"lora", "full"}).Alias("train_type");
  p.Add("lora_rank", &o->lora_rank, "rank of the adapters").Min(1);
  p.Add("lora_alpha", &o->lora_alpha, "adapters are scaled by alpha / rank").Above(0);
  p.Add("lora_dropout", &o->lora_dropout, "dropout on the input of adapters").Min(0).Below(1);
  p.Add("use_rslora", &o->use_rslora, "scale by alpha / sqrt(rank)");
  p.Add("target_modules", &o->target_modules, "modules that get adapters; all-linear: all but lm_head").Commas();

  p.Group("training");
  p.Add("num_train_epochs", &o->num_train_epochs, "passes over the dataset").Above(0);
  p.Add("max_steps", &o->max_steps, "optimiser steps, if above 0 instead of num_train_epochs").Min(-1);
  p.Add("per_device_train_batch_size", &o->per_device_train_batch_size, "samples of one micro-batch").Min(1);
  p.Add("per_device_eval_batch_size", &o->per_device_eval_batch_size, "the same for evaluation").Min(1);
  p.Add("gradient_accumulation_steps", &o->gradient_accumulation_steps, "micro-batches a rank and step")
      .Min(0)
      .DefaultText("such that the global batch is 16");
  p.Add("learning_rate", &o->learning_rate, "highest rate").Above(0).DefaultText("1e-4 for lora, 1e-5 for full");
  p.Add("lr_scheduler_type", &o->lr_scheduler_type, "how the rate changes after warm-up")
      .OneOf({"constant", "linear", "cosine", "cosine_with_min_lr"});
  p.Add("min_lr", &o->min_lr, "rate at the end of cosine_with_min_lr").Min(0);
  p.Add("min_lr_rate", &o->min_lr_rate, "the same as a share of learning_rate").Min(0).Max(1);
  p.Add("warmup_ratio", &o->warmup_ratio, "share of the steps in which the rate rises").Min(0).Max(1);
  p.Add("weight_decay", &o->weight_decay, "of AdamW, none on norms and biases").Min(0);
  p.Add("adam_beta1", &o->adam_beta1, "of AdamW").Min(0).Below(1);
  p.Add("adam_beta2", &o->adam_beta2, "of AdamW").Min(0).Below(1);
  p.Add("adam_epsilon", &o->adam_epsilon, "of AdamW").Above(0);
  p.Add("max_grad_norm", &o->max_grad_norm, "gradients are scaled down to this norm; 0: never").Min(0);
  p.Add("gradient_checkpointing", &o->gradient_checkpointing, "recompute each block in the backward pass");
  p.Add("seed", &o->seed, "of shuffling, dropout and new weights").Min(0);

  p.Group("output");
  p.Add("output_dir", &o->output_dir, "folder of the results").DefaultText("output/<name of the model>");
  p.Add("add_version", &o->add_version, "write into a new folder vN-<time> of output_dir");
  p.Add("logging_steps", &o->logging_steps, "steps between two lines of logging.jsonl").Min(1);
  p.Add("save_steps", &o->save_steps, "steps between two checkpoints").Min(1);
  p.Add("save_total_limit", &o->save_total_limit, "checkpoints that are kept; 0: all").Min(0);
  p.Add("eval_steps", &o->eval_steps, "steps between two evaluations").Min(0).DefaultText("save_steps");

  p.Group("where it runs");
  p.Add("mesh", &o->mesh, "workers as DPxFSDP, e.g. 2x2, or dp=2,fsdp=2").DefaultText("the launcher's, or 1x1");
  p.Add("local", &o->local, "all workers in this process, which is how a recipe without launcher runs").Ignored();
  p.Add("deterministic", &o->deterministic, "all workers on one thread, in a fixed order");
  p.Add("num_threads", &o->num_threads, "compute threads of a worker").Min(1);
}

absl::Status ResolveSftOptions(SftOptions* o, int data_world_size) {
  TROUPE_CHECK_GE(data_world_size, 1);
  if (o->gradient_accumulation_steps == 0) {
    const int64_t samples = o->per_device_train_batch_size * data_world_size;
    o->gradient_accumulation_steps = std::max<int64_t>(1, (kDefaultGlobalBatch + samples - 1) / samples);
  }
  if (o->learning_rate == 0) o->learning_rate = o->lora() ? 1e-4 : 1e-5;
  if (o->eval_steps == 0) o->eval_steps = o->save_steps;
  if (o->output_dir.empty()) {
    const std::string name = BaseName(o->model);
    o->output_dir = absl::StrCat("output/", name.empty() || name == "." || name == ".." ? "troupe-tiny" : name);
  }

  if (!o->lora() && !o->adapters.empty()) {
    return absl::InvalidArgumentError(absl::StrCat("--tuner_type full trains no adapters, but --adapters ",
                                                   o->adapters[0],
                                                   " is given; merge them into the model first, with tools/export"));
  }
  if (o->adapters.size() > 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("--adapters takes one folder to start from, ", o->adapters.size(), " are given"));
  }
  if (o->lora() && o->target_modules.empty()) {
    return absl::InvalidArgumentError("--target_modules is empty; all-linear means all but lm_head");
  }
  if (!o->val_dataset.empty() && o->split_dataset_ratio > 0) {
    return absl::InvalidArgumentError(absl::StrCat("--val_dataset ", o->val_dataset[0], " and --split_dataset_ratio ",
                                                   FormatNumber(o->split_dataset_ratio),
                                                   " both name rows to evaluate on; give one of them"));
  }
  const bool has_min_lr = o->min_lr > 0 || o->min_lr_rate > 0;
  if (has_min_lr && o->lr_scheduler_type != "cosine_with_min_lr") {
    return absl::InvalidArgumentError(
        absl::StrCat("--min_lr and --min_lr_rate belong to --lr_scheduler_type "
                     "cosine_with_min_lr, not ",
                     o->lr_scheduler_type));
  }
  if (o->lr_scheduler_type == "cosine_with_min_lr") {
    if (!has_min_lr) {
      return absl::InvalidArgumentError("--lr_scheduler_type cosine_with_min_lr needs --min_lr or --min_lr_rate");
    }
    const double from_rate = o->min_lr_rate * o->learning_rate;
    if (o->min_lr > 0 && o->min_lr_rate > 0 && o->min_lr != from_rate) {
      return absl::InvalidArgumentError(absl::StrCat("--min_lr ", FormatNumber(o->min_lr), " and --min_lr_rate ",
                                                     FormatNumber(o->min_lr_rate), " (", FormatNumber(from_rate),
                                                     ") disagree; give one of them"));
    }
    if (o->min_lr == 0) o->min_lr = from_rate;
    if (o->min_lr > o->learning_rate) {
      return absl::InvalidArgumentError(absl::StrCat("--min_lr ", FormatNumber(o->min_lr), " is above --learning_rate ",
                                                     FormatNumber(o->learning_rate)));
    }
  }
  return absl::OkStatus();
}

int64_t GlobalBatchSize(const SftOptions& options, int data_world_size) {
  return options.per_device_train_batch_size * options.gradient_accumulation_steps * data_world_size;
}

}  // namespace troupe::actors
