/// The directory of a job that lives in one process.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "runtime/node/directory.h"
#include "runtime/sched/scheduler.h"

namespace troupe::runtime {

/// What the directories of all nodes of a process share.
///
/// Threads  thread-safe.
class LocalRegistry {
 public:
  explicit LocalRegistry(std::shared_ptr<Scheduler> scheduler)
      : scheduler_(std::move(scheduler)), changed_(scheduler_->NewWaitQueue()) {}

  /// Takes a node out, as if its process had died.
  void KillNode(int32_t node, const absl::Status& why);
  /// Tells every node that the job is to end.
  void Shutdown(const absl::Status& why);

 private:
  friend class LocalDirectory;
  struct Member {
    NodeAddress address;
    Directory::Listener* listener = nullptr;
  };

  void Join(const NodeAddress& address, Directory::Listener* listener);
  void Leave(const NodeAddress& address);

  const std::shared_ptr<Scheduler> scheduler_;
  std::mutex mutex_;
  std::unique_ptr<WaitQueue> changed_;
  std::map<int32_t, Member> members_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, ActorAddress> names_ ABSL_GUARDED_BY(mutex_);
  std::map<int32_t, int> max_restarts_ ABSL_GUARDED_BY(mutex_);
};

/// One node's view of it; the node is up from when it listens.
class LocalDirectory final : public Directory {
 public:
  LocalDirectory(std::shared_ptr<LocalRegistry> registry, NodeAddress self)
      : registry_(std::move(registry)), self_(std::move(self)) {}
  ~LocalDirectory() override { registry_->Leave(self_); }

  const NodeAddress& self() const override { return self_; }
  void Listen(Listener* listener) override { registry_->Join(self_, listener); }
  absl::StatusOr<std::vector<NodeAddress>> WaitForWorkers(int count, absl::Time deadline) override;
  absl::Status RegisterName(const std::string& name, const ActorAddress& actor) override;
  absl::StatusOr<ActorAddress> LookUpName(const std::string& name, absl::Time deadline) override;
  absl::Status RemoveName(const std::string& name) override;
  absl::Status SetMaxRestarts(int32_t node, int max_restarts) override;

 private:
  const std::shared_ptr<LocalRegistry> registry_;
  const NodeAddress self_;
};

}  // namespace troupe::runtime
