/// The parameters of one block of a model, sharded over the fsdp dimension: gathered before use, freed after.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/comm/communicator.h"
#include "engine/device/device.h"
#include "engine/fsdp/parameter.h"

namespace troupe::engine {

/// Elements that are hashed and summed as one; shards are multiples of it, so that these do not depend on the mesh.
constexpr int64_t kShardChunk = 1024;

/// A run of parameters of one kind (frozen, or trainable) laid end to end and cut into equal shards.
///
///   flat = [p0 | p1 | ...], each from a multiple of 16 elements on; shard r = flat[r S : (r + 1) S], S a multiple of kShardChunk
///
/// Dtype  the shard is f32 for trainable parameters (the master weights); frozen ones may be kept in bf16
struct FlatParameters {
  bool trainable = false;
  std::vector<Parameter*> parameters;
  std::vector<int64_t> offsets;
  int64_t size = 0;        ///< elements that mean something (padding between parameters included)
  int64_t shard_size = 0;
  Tensor shard;
  Tensor shard_grad;       ///< f32, of one micro-batch; trainable only
  Tensor full;             ///< f32, while gathered
  Tensor full_grad;        ///< f32, from the first gather of a backward pass to ReduceGrad
};

/// Dtype  weights are computed with in f32; `storage` bf16 keeps frozen shards, and sends all weights, in bf16
class ParameterBlock {
 public:
  ParameterBlock(std::string name, std::vector<ParameterSpec> specs, DType storage, Communicator& fsdp, Device& device);

  const std::string& name() const { return name_; }
  /// Aborts when there is none: names are the program's own.
  Parameter& Find(const std::string& name);
  std::vector<Parameter*> parameters();
  FlatParameters& frozen() { return frozen_; }
  FlatParameters& trainable() { return trainable_; }

  /// Makes all values readable; with `with_grad` also the gradients, zero at the first time since ReduceGrad. Calls nest.
  absl::Status Gather(bool with_grad);
  /// Frees what the matching Gather made.
  void Release();
  /// shard_grad = this rank's part of the sum of the gradients over the fsdp dimension; frees the full gradients.
  absl::Status ReduceGrad();
  /// After the shards were written: forgets everything made from the old weights.
  void WeightsChanged();

 private:
  absl::Status GatherFlat(FlatParameters& flat);

  std::string name_;
  std::vector<std::unique_ptr<Parameter>> parameters_;
  FlatParameters frozen_, trainable_;
  DType storage_;
  Communicator* fsdp_;
  Device* device_;
  int gathered_ = 0;
};

}  // namespace troupe::engine
