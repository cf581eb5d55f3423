/// One actor on its node: its mailbox, and the task that runs its methods one at a time.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "runtime/actor/context.h"
#include "runtime/actor/object_state.h"
#include "runtime/actor/registry.h"
#include "runtime/msg/message.h"
#include "runtime/node/node.h"
#include "runtime/node/report.h"

namespace troupe::runtime {

/// Threads   thread-safe.
/// Lifetime  the task holds the cell and its node until it ends.
class ActorCell : public std::enable_shared_from_this<ActorCell> {
 public:
  /// `create` is the message that asked for the actor: it is answered when the constructor has run.
  ActorCell(std::shared_ptr<Node> node, CreateRequest request, Message create);

  void Start();
  /// Puts a call at the end of the mailbox, unless it came before.
  void Push(Message message, std::vector<std::shared_ptr<ObjectState>> refs, absl::Time deadline);
  void Cancel(const Envelope& cancel);
  /// What waits is answered with `why`; the method that runs sees cancelled(). `request` is answered when the actor is gone.
  void Stop(const absl::Status& why, std::optional<Envelope> request);
  bool Join(absl::Time deadline);
  ActorReport Report();
  const ActorIdentity& identity() const { return request_.identity; }

 private:
  struct Work {
    Message message;
    std::vector<std::shared_ptr<ObjectState>> refs;
    absl::Time deadline;
  };

  void Run(const std::shared_ptr<Node>& node);
  absl::Status Construct(Node& node);
  void Execute(Node& node, Work& work);
  absl::StatusOr<Payload> Invoke(Node& node, Work& work, const MethodEntry& method);
  absl::Status WithOrigin(const absl::Status& status, const std::string& method) const;

  const std::weak_ptr<Node> node_;
  const CreateRequest request_;
  Message create_;
  const ClassEntry* class_ = nullptr;
  std::unique_ptr<ActorContext> context_;
  std::shared_ptr<void> object_;

  std::mutex mutex_;
  std::unique_ptr<WaitQueue> changed_;
  std::deque<Work> queue_ ABSL_GUARDED_BY(mutex_);
  std::unordered_map<uint64_t, uint64_t> sessions_ ABSL_GUARDED_BY(mutex_);  ///< the next sequence number of each
  bool idle_ ABSL_GUARDED_BY(mutex_) = false;
  std::optional<absl::Status> stop_ ABSL_GUARDED_BY(mutex_);
  std::vector<Envelope> stop_requests_ ABSL_GUARDED_BY(mutex_);
  absl::Status broken_ ABSL_GUARDED_BY(mutex_);  ///< why the constructor or restore failed
  Envelope current_ ABSL_GUARDED_BY(mutex_);
  std::string current_method_ ABSL_GUARDED_BY(mutex_);
  absl::Time current_since_ ABSL_GUARDED_BY(mutex_);
  uint64_t calls_done_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t duplicates_ ABSL_GUARDED_BY(mutex_) = 0;
  std::shared_ptr<Task> task_;
};

}  // namespace troupe::runtime
