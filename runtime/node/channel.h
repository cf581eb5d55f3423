/// Messages among the members of a group, for collectives: inboxes on each node, one for every member that lives there.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <tuple>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "runtime/collective/point_to_point.h"
#include "runtime/msg/codec.h"
#include "runtime/msg/message.h"
#include "runtime/node/directory.h"
#include "runtime/sched/scheduler.h"

namespace troupe::runtime {

class Node;
class ChannelInbox;

struct ChannelMember {
  int32_t rank = -1;
  int32_t node = -1;
  std::string host;
  MSGPACK_DEFINE(rank, node, host)
};

struct ChannelDescription {
  uint64_t number = 0;                 ///< the same on all members
  std::string name;                    ///< of the group, for errors
  uint32_t epoch = 0;                  ///< grows when the channel is used again after a member died
  std::vector<ChannelMember> members;  ///< by rank
  MSGPACK_DEFINE(number, name, epoch, members)
};

/// One member's end of a channel.
///
/// When the group is reset (ActorGroup::Reset), what goes on here ends with ABORTED, until Rejoin.
/// Threads   thread-safe.
/// Lifetime  the node outlives it.
class NodeChannel final : public PointToPoint {
 public:
  NodeChannel(Node* node, ChannelDescription description, int rank);
  ~NodeChannel() override;

  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(description_.members.size()); }
  absl::Status Send(int to, uint64_t tag, Buffer data) override;
  absl::StatusOr<Buffer> Receive(int from, uint64_t tag, absl::Time deadline) override;
  void Revoke(const absl::Status& why) override;
  absl::Status revoked() const override;
  /// Takes part again after a reset; operations that were in progress must be over, and Collectives be made anew.
  void Rejoin();

 private:
  Node* const node_;
  const ChannelDescription description_;
  const int rank_;
  const std::shared_ptr<ChannelInbox> inbox_;
  std::atomic<uint32_t> epoch_{0};
};

/// The inboxes of a node; messages may come before the member that they are for.
///
/// Threads  thread-safe.
class ChannelHub {
 public:
  explicit ChannelHub(Scheduler* scheduler) : scheduler_(scheduler) {}

  std::shared_ptr<ChannelInbox> Find(uint64_t channel, int rank);
  void Close(uint64_t channel, int rank);
  void Deliver(Message message);
  void Revoke(const Message& message);
  /// Members start again: what an older epoch sent is thrown away.
  void Reset(uint64_t channel, uint32_t epoch);
  /// Breaks every channel that has a member on that node.
  void NodeDown(const NodeAddress& node, const absl::Status& why);
  void RevokeAll(const absl::Status& why);

 private:
  Scheduler* const scheduler_;
  std::mutex mutex_;
  std::map<std::pair<uint64_t, int>, std::shared_ptr<ChannelInbox>> inboxes_ ABSL_GUARDED_BY(mutex_);
};

/// What has come for one member.
class ChannelInbox {
 public:
  explicit ChannelInbox(Scheduler* scheduler) : scheduler_(scheduler), changed_(scheduler->NewWaitQueue()) {}

  void Open(const ChannelDescription& description);
  void Push(uint32_t epoch, int from, uint64_t tag, Buffer data);
  absl::StatusOr<Buffer> Pop(uint32_t epoch, int from, uint64_t tag, absl::Time deadline);
  /// True when this was the first reason of its epoch.
  bool Revoke(uint32_t epoch, const absl::Status& why);
  void Reset(uint32_t epoch);
  void NodeDown(const NodeAddress& node, const absl::Status& why);
  void MemberDown(const ChannelMember& member, const absl::Status& why);
  /// ABORTED when `epoch` is over.
  absl::Status revoked(uint32_t epoch) const;
  uint32_t epoch() const;

 private:
  using Key = std::tuple<uint32_t, int, uint64_t>;  // epoch, from, tag

  absl::Status Why(uint32_t epoch) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  Scheduler* const scheduler_;
  mutable std::mutex mutex_;
  std::unique_ptr<WaitQueue> changed_;
  bool open_ ABSL_GUARDED_BY(mutex_) = false;
  ChannelDescription description_ ABSL_GUARDED_BY(mutex_);
  uint32_t epoch_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<uint32_t, absl::Status> revoked_ ABSL_GUARDED_BY(mutex_);  ///< by epoch
  std::map<Key, std::deque<Buffer>> messages_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace troupe::runtime
