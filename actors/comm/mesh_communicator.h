/// Lets the engine speak along one dimension of an actor group's mesh.
#pragma once

#include <string>

#include "engine/comm/communicator.h"
#include "runtime/actor/context.h"
#include "runtime/collective/collective.h"

namespace troupe::actors {

/// The ranks that differ from this actor's in dimension `dim` alone.
///
/// Lifetime  that of the actor's context at most
/// Errors    as runtime::Collective: naming the rank and the operation, on all members
class MeshCommunicator final : public engine::Communicator {
 public:
  /// `channel` tells communicators of one actor apart; the same on all ranks.
  MeshCommunicator(const runtime::GroupMembership& group, const std::string& dim, uint64_t channel)
      : collective_(group.channel.get(), group.mesh.slice(dim, group.rank), {.name = dim, .channel = channel}) {}

  int rank() const override { return collective_.rank(); }
  int size() const override { return collective_.size(); }
  absl::Status AllGather(absl::Span<const std::byte> send, absl::Span<std::byte> recv) override {
    if (size() == 1) return single_.AllGather(send, recv);
    return collective_.AllGather(send, recv);
  }
  absl::Status ReduceScatter(absl::Span<const float> send, absl::Span<float> recv) override {
    if (size() == 1) return single_.ReduceScatter(send, recv);
    return collective_.ReduceScatter(send, recv);
  }
  absl::Status AllReduce(absl::Span<float> data) override {
    if (size() == 1) return absl::OkStatus();
    return collective_.AllReduce(data);
  }

 private:
  runtime::Collective collective_;
  engine::SingleCommunicator single_;
};

}  // namespace troupe::actors
