/// The decoder-only transformer of Llama, Qwen2/2.5 and Qwen3: one implementation, configurations of it.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/comm/communicator.h"
#include "engine/fsdp/parameter_block.h"
#include "engine/model/config.h"
#include "engine/model/packed_batch.h"
#include "engine/ops/linear.h"
#include "engine/ops/token_logps.h"

namespace troupe::engine {

/// Low-rank adapters on some linear layers; without one all weights train (or none do).
struct AdapterOptions {
  int64_t rank = 8;
  double scaling = 1;   ///< alpha / rank, or alpha / sqrt(rank)
  double dropout = 0;
  std::vector<std::string> target_modules;  ///< of q_proj k_proj v_proj o_proj gate_proj up_proj down_proj
};

struct DecoderOptions {
  std::optional<AdapterOptions> adapter;
  bool train_base = false;               ///< full fine-tuning
  DType storage = DType::kF32;           ///< of frozen shards and of weights on their way between ranks
  bool gradient_checkpointing = false;   ///< compute each layer again in the backward pass instead of saving its insides
};

/// Fills elements [begin, begin + count) of a parameter, in the order of its flat layout.
using WeightReader = std::function<absl::Status(const ParameterSpec& parameter, int64_t begin, int64_t count, float* values)>;

/// x = embed(ids); a layer:  x += o(attention(rope(norm(q)), rope(norm(k)), v)),  x += down(silu(gate) up), each of rms_norm(x)
///
/// Weights live in blocks, sharded over `fsdp`: the root (embedding, last norm, head) stays gathered during a pass, a layer is
/// gathered for its own forward and backward.
/// Threads  one caller at a time
class Decoder {
 public:
  Decoder(DecoderConfig config, DecoderOptions options, Communicator& fsdp, Device& device);

  const DecoderConfig& config() const { return config_; }
  const DecoderOptions& options() const { return options_; }
  Device& device() const { return *device_; }
  /// The root first, then the layers.
  const std::vector<std::unique_ptr<ParameterBlock>>& blocks() const { return blocks_; }

  /// Reads this rank's shards: never the whole model. `trainable` picks which kind (both when not set).
  absl::Status Load(const WeightReader& reader, std::optional<bool> trainable = std::nullopt);
  /// Calls `visit` with the whole of every parameter, one block at a time; every fsdp rank must call it.
  absl::Status Visit(bool trainable_only, const std::function<absl::Status(const ParameterSpec&, const Tensor&)>& visit);

  /// Log-probabilities of the batch's targets; with a recording tape gradients enter through `*dlogps`.
  ///
  /// Errors  of the collectives
  absl::StatusOr<TokenScores> Forward(Tape& tape, const PackedBatch& batch, std::shared_ptr<std::vector<float>> dlogps);

  /// The name under which a weight's adapter is stored, as PEFT does.
  static std::string AdapterName(const std::string& weight_name, const std::string& which);

 private:
  struct Layer {
    ParameterBlock* block;
    Parameter *input_norm, *post_norm, *q_norm, *k_norm;
    LinearLayer q, k, v, o, gate, up, down;
  };

  void AddLayer(int64_t index);
  Variable LayerForward(Tape& tape, const Layer& layer, const Variable& x, const PackedBatch& batch) const;
  absl::StatusOr<Variable> RunLayer(Tape& tape, const Layer& layer, const Variable& x, const PackedBatch& batch);
  void GrowRopeTable(const PackedRows& rows);

  DecoderConfig config_;
  DecoderOptions options_;
  Communicator* fsdp_;
  Device* device_;
  std::vector<std::unique_ptr<ParameterBlock>> blocks_;
  std::vector<Layer> layers_;
  Parameter* embedding_ = nullptr;
  Parameter* final_norm_ = nullptr;
  Parameter* head_ = nullptr;
  std::shared_ptr<const RopeTable> rope_;
};

}  // namespace troupe::engine
