/// Every task is a fiber, and all of them and the thread that made the scheduler take turns on that one thread, in a fixed order.
#pragma once

#include <condition_variable>
#include <deque>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "runtime/sched/scheduler.h"

namespace troupe::runtime {

/// A fiber runs until it waits; then the one that has been runnable longest runs. What happens depends on the program alone.
///
/// Threads   tasks wait and start tasks on the owner's thread; NotifyAll may come from any.
/// Lifetime  must outlive its tasks and wait queues; made and destroyed on the owner's thread.
/// Errors    when no fiber can run and no deadline is near, every wait but the idle ones ends with kDeadlock.
class FiberScheduler final : public Scheduler {
 public:
  FiberScheduler();
  ~FiberScheduler() override;
  FiberScheduler(const FiberScheduler&) = delete;
  FiberScheduler& operator=(const FiberScheduler&) = delete;

  std::unique_ptr<WaitQueue> NewWaitQueue() override;
  std::shared_ptr<Task> Start(std::string name, std::function<void()> body) override;
  std::vector<TaskReport> Report() override;
  bool deterministic() const override { return true; }
  std::string deadlock() const override { return deadlock_; }

 private:
  class Fiber;
  class FiberTask;
  class FiberWaitQueue;
  struct Waiters;

  void SwitchAway();
  Fiber* PickNext();
  void DrainForeign();
  void WakeExpired();
  absl::Time EarliestDeadline() const;
  void WakeAllForDeadlock();
  void MakeRunnable(Fiber* fiber, WaitQueue::WakeUp why);
  void NotifyFromOwner(Waiters& waiters);
  void Notify(const std::shared_ptr<Waiters>& waiters);
  static void Enter();

  const std::thread::id owner_ = std::this_thread::get_id();
  std::list<std::unique_ptr<Fiber>> fibers_;  ///< the first is the owner's own stack
  Fiber* current_ = nullptr;
  std::deque<Fiber*> runnable_;
  std::vector<void*> free_stacks_;
  std::string deadlock_;
  int switches_ = 0;

  std::mutex foreign_mutex_;
  std::condition_variable foreign_changed_;
  std::vector<std::shared_ptr<Waiters>> foreign_ ABSL_GUARDED_BY(foreign_mutex_);
};

}  // namespace troupe::runtime
