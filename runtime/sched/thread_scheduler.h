/// Every task is a thread.
#pragma once

#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "runtime/sched/scheduler.h"

namespace troupe::runtime {

/// Threads   thread-safe; any thread may wait, also one that it did not start.
/// Lifetime  must outlive its tasks and wait queues.
class ThreadScheduler final : public Scheduler {
 public:
  std::unique_ptr<WaitQueue> NewWaitQueue() override;
  std::shared_ptr<Task> Start(std::string name, std::function<void()> body) override;
  std::vector<TaskReport> Report() override;
  bool deterministic() const override { return false; }
  std::string deadlock() const override { return ""; }

 private:
  class ThreadTask;

  std::mutex mutex_;
  std::list<std::weak_ptr<ThreadTask>> tasks_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace troupe::runtime
