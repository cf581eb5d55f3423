#include "runtime/sched/thread_scheduler.h"

#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <thread>
#include <utility>

namespace troupe::runtime {
namespace {

/// What the thread of a task waits for; other threads read it for introspection.
struct WaitSlot {
  std::mutex mutex;
  const WaitDescription* what ABSL_GUARDED_BY(mutex) = nullptr;
  absl::Time since ABSL_GUARDED_BY(mutex);
};

thread_local WaitSlot* this_slot = nullptr;

class WaitNote {
 public:
  explicit WaitNote(const WaitDescription& what) {
    if (this_slot == nullptr) return;
    const std::lock_guard<std::mutex> lock(this_slot->mutex);
    this_slot->what = &what;
    this_slot->since = absl::Now();
  }
  ~WaitNote() {
    if (this_slot == nullptr) return;
    const std::lock_guard<std::mutex> lock(this_slot->mutex);
    this_slot->what = nullptr;
  }
  WaitNote(const WaitNote&) = delete;
  WaitNote& operator=(const WaitNote&) = delete;
};

class ThreadWaitQueue final : public WaitQueue {
 public:
  WakeUp Wait(std::unique_lock<std::mutex>& lock, absl::Time deadline, WaitDescription what) override {
    const WaitNote note(what);
    // A steady clock and a bounded step: neither a jump of the wall clock nor a date far away upsets it.
    const absl::Duration left = std::min(deadline - absl::Now(), absl::Hours(1));
    if (left <= absl::ZeroDuration()) return WakeUp::kDeadline;
    changed_.wait_for(lock, absl::ToChronoNanoseconds(left));
    return absl::Now() >= deadline ? WakeUp::kDeadline : WakeUp::kNotified;
  }
  void WaitIdle(std::unique_lock<std::mutex>& lock) override { changed_.wait(lock); }
  void NotifyAll() override { changed_.notify_all(); }

 private:
  std::condition_variable changed_;
};

}  // namespace

class ThreadScheduler::ThreadTask final : public Task {
 public:
  ThreadTask(std::string name, std::function<void()> body) : name_(std::move(name)) {
    auto state = state_;
    thread_ = std::thread([state, label = name_.substr(0, 15), run = std::move(body)]() mutable {
      pthread_setname_np(pthread_self(), label.c_str());
      this_slot = &state->slot;
      run();
      run = nullptr;  // what the body holds goes before the end is told
      this_slot = nullptr;
      const std::lock_guard<std::mutex> lock(state->mutex);
      state->ended = true;
      state->changed.notify_all();
    });
  }

  ~ThreadTask() override {
    if (!thread_.joinable()) return;
    bool ended;
    {
      const std::lock_guard<std::mutex> lock(state_->mutex);
      ended = state_->ended;
    }
    // A body that did not end in time keeps its own state alive and goes with the process.
    if (ended && thread_.get_id() != std::this_thread::get_id()) {
      thread_.join();
    } else {
      thread_.detach();
    }
  }

  bool Join(absl::Time deadline) override {
    std::unique_lock<std::mutex> lock(state_->mutex);
    while (!state_->ended) {
      const absl::Duration left = std::min(deadline - absl::Now(), absl::Hours(1));
      if (left <= absl::ZeroDuration()) return false;
      state_->changed.wait_for(lock, absl::ToChronoNanoseconds(left));
    }
    return true;
  }

  TaskReport Report() {
    TaskReport report;
    report.name = name_;
    const std::lock_guard<std::mutex> lock(state_->slot.mutex);
    if (state_->slot.what != nullptr) {
      report.waits_for = (*state_->slot.what)();
      report.since = state_->slot.since;
    }
    return report;
  }

 private:
  struct State {
    std::mutex mutex;
    std::condition_variable changed;
    bool ended ABSL_GUARDED_BY(mutex) = false;
    WaitSlot slot;
  };

  const std::string name_;
  const std::shared_ptr<State> state_ = std::make_shared<State>();
  std::thread thread_;
};

std::unique_ptr<WaitQueue> ThreadScheduler::NewWaitQueue() { return std::make_unique<ThreadWaitQueue>(); }

std::shared_ptr<Task> ThreadScheduler::Start(std::string name, std::function<void()> body) {
  auto task = std::make_shared<ThreadTask>(std::move(name), std::move(body));
  const std::lock_guard<std::mutex> lock(mutex_);
  tasks_.remove_if([](const std::weak_ptr<ThreadTask>& old) { return old.expired(); });
  tasks_.push_back(task);
  return task;
}

std::vector<TaskReport> ThreadScheduler::Report() {
  std::vector<std::shared_ptr<ThreadTask>> alive;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (const auto& task : tasks_) {
      if (auto held = task.lock()) alive.push_back(std::move(held));
    }
  }
  std::vector<TaskReport> reports;
  for (const auto& task : alive) reports.push_back(task->Report());
  return reports;
}

}  // namespace troupe::runtime
