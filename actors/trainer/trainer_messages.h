/// What drivers and trainers say to each other.
#pragma once

#include <cstdint>
#include <msgpack.hpp>
#include <string>
#include <vector>

namespace troupe::actors {

struct TrainerOptions {
  std::string model;               ///< folder in Hugging Face layout
  bool random_weights = false;     ///< only the config of `model` is read
  std::string adapters;            ///< folder in PEFT layout to start from, or empty
  bool lora = true;                ///< else all weights train
  bool trains = true;              ///< false: scoring only, nothing is kept for training
  int64_t lora_rank = 8;
  double lora_alpha = 32;
  double lora_dropout = 0.05;
  bool use_rslora = false;
  std::vector<std::string> target_modules;
  bool bf16 = false;               ///< weights kept and sent as bfloat16
  bool gradient_checkpointing = false;
  int64_t num_threads = 1;
  uint64_t seed = 42;
  double adam_beta1 = 0.9, adam_beta2 = 0.95, adam_epsilon = 1e-8, weight_decay = 0.1, max_grad_norm = 1.0;
  MSGPACK_DEFINE(model, random_weights, adapters, lora, trains, lora_rank, lora_alpha, lora_dropout, use_rslora, target_modules, bf16,
                 gradient_checkpointing, num_threads, seed, adam_beta1, adam_beta2, adam_epsilon, weight_decay, max_grad_norm)
};

struct ModelInfo {
  int64_t num_parameters = 0;
  int64_t num_trainable = 0;
  int64_t shard_bytes = 0;  ///< of this rank: weights, gradients and optimiser state
  std::string instruction_set;
  MSGPACK_DEFINE(num_parameters, num_trainable, shard_bytes, instruction_set)
};

struct SampleMessage {
  std::vector<int32_t> token_ids;
  std::vector<uint8_t> loss_mask;
  MSGPACK_DEFINE(token_ids, loss_mask)
};

struct MicroBatchMessage {
  std::vector<SampleMessage> samples;
  uint64_t first_sample = 0;  ///< place of the first in the global batch
  MSGPACK_DEFINE(samples, first_sample)
};

struct ScoreMessage {
  double loss_sum = 0;
  int64_t num_targets = 0;
  int64_t num_correct = 0;
  std::vector<float> logps;
  MSGPACK_DEFINE(loss_sum, num_targets, num_correct, logps)
};

struct MicroBatchScores {
  std::vector<ScoreMessage> samples;
  MSGPACK_DEFINE(samples)
};

struct StepReport {
  double grad_norm = 0;
  uint64_t state_hash = 0;
  double memory_gib = 0;  ///< peak of the process
  MSGPACK_DEFINE(grad_norm, state_hash, memory_gib)
};

}  // namespace troupe::actors
