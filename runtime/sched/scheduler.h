/// Runs tasks (actors) and is what every wait of the runtime goes through: threads, or fibers on one thread.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace troupe::runtime {

/// Says what a task waits for; called only when somebody asks, perhaps from another thread.
///
/// Never    takes a lock or reads what changes during the wait.
using WaitDescription = absl::FunctionRef<std::string()>;

/// A condition variable of the scheduler.
///
/// Threads  thread-safe; NotifyAll may be called with or without the lock.
class WaitQueue {
 public:
  enum class WakeUp {
    kNotified,  ///< or for no reason at all: look again
    kDeadline,
    kDeadlock,  ///< nothing could ever notify: Scheduler::deadlock() says who waits for what
  };

  virtual ~WaitQueue() = default;
  /// Releases `lock` while waiting.
  virtual WakeUp Wait(std::unique_lock<std::mutex>& lock, absl::Time deadline, WaitDescription what) = 0;
  /// The wait of a task that has nothing to do: no deadline, and no part in a deadlock.
  virtual void WaitIdle(std::unique_lock<std::mutex>& lock) = 0;
  virtual void NotifyAll() = 0;
};

/// Something that runs on its own until its body returns.
class Task {
 public:
  virtual ~Task() = default;
  /// Waits for the end; false when the deadline comes first.
  virtual bool Join(absl::Time deadline) = 0;
};

/// What a task does now, for introspection.
struct TaskReport {
  std::string name;
  std::string waits_for;  ///< empty when it runs or is idle
  absl::Time since = absl::InfinitePast();
};

class Scheduler {
 public:
  virtual ~Scheduler() = default;
  virtual std::unique_ptr<WaitQueue> NewWaitQueue() = 0;
  virtual std::shared_ptr<Task> Start(std::string name, std::function<void()> body) = 0;
  virtual std::vector<TaskReport> Report() = 0;
  /// True when everything runs on one thread in a fixed order.
  virtual bool deterministic() const = 0;
  /// The last deadlock found: who waits for what.
  virtual std::string deadlock() const = 0;
};

/// Waits until `done()`, which is called with the lock held.
///
/// Errors  DEADLINE_EXCEEDED naming what was waited for; FAILED_PRECONDITION on a deadlock, naming who waits for what.
template <typename Predicate>
absl::Status WaitUntil(Scheduler& scheduler, WaitQueue& queue, std::unique_lock<std::mutex>& lock, absl::Time deadline,
                       WaitDescription what, Predicate done) {
  while (!done()) {
    const WaitQueue::WakeUp wake_up = queue.Wait(lock, deadline, what);
    if (wake_up == WaitQueue::WakeUp::kNotified || done()) continue;
    if (wake_up == WaitQueue::WakeUp::kDeadlock) return absl::FailedPreconditionError(scheduler.deadlock());
    return absl::DeadlineExceededError("no answer in time: waited for " + what());
  }
  return absl::OkStatus();
}

}  // namespace troupe::runtime
