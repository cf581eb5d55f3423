/// Sums gradients along the fixed binary tree over the micro-batches of a global batch, in shards.
#pragma once

#include <vector>

#include "absl/status/status.h"
#include "engine/comm/communicator.h"
#include "engine/fsdp/parameter_block.h"

namespace troupe::engine {

/// One step's gradients of this rank's shards.
///
/// The fsdp level of the tree is the reduce-scatter that made the blocks' shard_grad; here come the micro-batches of one
/// replica (a binary counter of partial sums), then the dp level (all-reduce, in rank order), then what is left over, in order.
/// With D = dp F and M / D = 2^a odd, replica d sums micro-batches ((o dp + d) 2^a + j) F + f over j before dp joins.
/// Which numbers are added to which does not depend on dp and F as long as both are powers of two.
class GradientTree {
 public:
  GradientTree(const std::vector<ParameterBlock*>& blocks, Communicator& dp, Device& device);

  /// Starts a step of `micro_batches` per rank.
  void Begin(int64_t micro_batches);
  /// Takes the blocks' shard_grad as the next micro-batch's.
  absl::Status Add();
  /// The sum for each block, after all micro-batches were added.  Shapes  [blocks][shard_size]
  const std::vector<Tensor>& gradients() const;

 private:
  using Gradients = std::vector<Tensor>;
  void AddInto(const Gradients& from, Gradients& to);

  std::vector<ParameterBlock*> blocks_;
  Communicator* dp_;
  Device* device_;
  int64_t expected_ = 0, added_ = 0, group_ = 1;
  std::vector<Gradients> levels_;  // partial sums of 2^level micro-batches; empty: none
  Gradients total_;
};

}  // namespace troupe::engine
