/// What an actor can know about itself and its surroundings; given to its constructor.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "runtime/actor/actor_target.h"
#include "runtime/mesh/device_mesh.h"
#include "runtime/node/channel.h"

namespace troupe::runtime {

class Node;

/// An actor's place in an ActorGroup.
struct GroupMembership {
  std::string name;
  DeviceMesh mesh;
  int rank = 0;
  std::vector<ChannelMember> members;  ///< by rank
  std::unique_ptr<NodeChannel>
      channel;  ///< to the other members; Collective takes ranks of it (mesh.slice) for one dimension
};

/// Lifetime  that of the actor.
/// Threads   thread-safe.
class ActorContext {
 public:
  ActorContext(Node* node, ActorIdentity identity, bool restarted, std::unique_ptr<GroupMembership> group)
      : node_(node), identity_(std::move(identity)), restarted_(restarted), group_(std::move(group)) {}

  const std::string& name() const { return identity_.name; }
  /// The worker rank that the actor runs on, -1 on the driver; in a group the rank in its mesh.
  int rank() const { return identity_.rank; }
  const std::string& host() const { return identity_.host; }
  const ActorIdentity& identity() const { return identity_; }
  Node& node() const { return *node_; }
  /// True when the actor lived before on an incarnation of its node that died.
  bool restarted() const { return restarted_; }
  /// Null outside a group.
  const GroupMembership* group() const { return group_.get(); }

  /// The caller of the method that runs does not want its result any more, or the actor is being ended.
  bool cancelled() const { return cancelled_.load(std::memory_order_relaxed); }
  /// When the caller of the method that runs stops waiting.
  absl::Time deadline() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return deadline_;
  }

 private:
  friend class ActorCell;

  Node* const node_;
  const ActorIdentity identity_;
  const bool restarted_;
  const std::unique_ptr<GroupMembership> group_;
  std::atomic<bool> cancelled_{false};
  mutable std::mutex mutex_;
  absl::Time deadline_ ABSL_GUARDED_BY(mutex_) = absl::InfiniteFuture();
};

}  // namespace troupe::runtime
