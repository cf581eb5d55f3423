#include "runtime/sched/fiber_scheduler.h"

#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "runtime/base/check.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#define TROUPE_FIBER_ASAN 1
#endif
#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#define TROUPE_FIBER_TSAN 1
#endif

namespace troupe::runtime {
namespace {

constexpr size_t kStackBytes = size_t{8} << 20;

size_t PageBytes() { return static_cast<size_t>(sysconf(_SC_PAGESIZE)); }

/// Pages are taken when they are touched; the one below the stack faults instead of running into a neighbour.
void* MapStack() {
  void* base = mmap(nullptr, kStackBytes + PageBytes(), PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
  TROUPE_CHECK(base != MAP_FAILED) << "no memory for a fiber's stack: " << std::strerror(errno);
  TROUPE_CHECK_EQ(mprotect(base, PageBytes(), PROT_NONE), 0);
  return base;
}

}  // namespace

struct FiberScheduler::Waiters {
  std::vector<Fiber*> fibers;  ///< in the order they began to wait
};

class FiberScheduler::Fiber {
 public:
  std::string name;
  std::function<void()> body;
  ucontext_t context;
  void* stack = nullptr;
  bool done = false;
  std::unique_ptr<WaitQueue> ended;
  std::mutex mutex;  ///< only so that the end can be waited for like anything else

  Waiters* waits_in = nullptr;
  bool idle = false;
  absl::Time deadline = absl::InfiniteFuture();
  const WaitDescription* what = nullptr;
  absl::Time since;
  WaitQueue::WakeUp why = WaitQueue::WakeUp::kNotified;

#ifdef TROUPE_FIBER_ASAN
  void* fake_stack = nullptr;
  const void* stack_bottom = nullptr;
  size_t stack_size = 0;
#endif
#ifdef TROUPE_FIBER_TSAN
  void* tsan = nullptr;
#endif
};

namespace {

/// The fiber that a fresh context must begin with, and the one it comes from: makecontext passes only ints.
thread_local FiberScheduler* entering = nullptr;

}  // namespace

class FiberScheduler::FiberWaitQueue final : public WaitQueue {
 public:
  explicit FiberWaitQueue(FiberScheduler* scheduler) : scheduler_(scheduler) {}

  WakeUp Wait(std::unique_lock<std::mutex>& lock, absl::Time deadline, WaitDescription what) override {
    Fiber& self = *scheduler_->current_;
    self.what = &what;
    self.since = absl::Now();
    self.deadline = deadline;
    const WakeUp why = Suspend(self, lock);
    self.what = nullptr;
    self.deadline = absl::InfiniteFuture();
    return why;
  }

  void WaitIdle(std::unique_lock<std::mutex>& lock) override {
    Fiber& self = *scheduler_->current_;
    self.idle = true;
    Suspend(self, lock);
    self.idle = false;
  }

  void NotifyAll() override { scheduler_->Notify(waiters_); }

 private:
  WakeUp Suspend(Fiber& self, std::unique_lock<std::mutex>& lock) {
    TROUPE_CHECK(std::this_thread::get_id() == scheduler_->owner_) << "a wait on a thread that is not the fibers' own";
    const std::shared_ptr<Waiters> waiters = waiters_;  // the queue may be gone when we come back
    self.waits_in = waiters.get();
    waiters->fibers.push_back(&self);
    lock.unlock();
    scheduler_->SwitchAway();
    lock.lock();
    return self.why;
  }

  FiberScheduler* const scheduler_;
  const std::shared_ptr<Waiters> waiters_ = std::make_shared<Waiters>();
};

class FiberScheduler::FiberTask final : public Task {
 public:
  FiberTask(FiberScheduler* scheduler, Fiber* fiber) : scheduler_(scheduler), fiber_(fiber) {}

  bool Join(absl::Time deadline) override {
    std::unique_lock<std::mutex> lock(fiber_->mutex);
    const auto what = [this] { return "the end of " + fiber_->name; };
    return WaitUntil(*scheduler_, *fiber_->ended, lock, deadline, what, [this] { return fiber_->done; }).ok();
  }

 private:
  FiberScheduler* const scheduler_;
  Fiber* const fiber_;
};

FiberScheduler::FiberScheduler() {
  fibers_.push_back(std::make_unique<Fiber>());
  current_ = fibers_.front().get();
  current_->name = "driver";
#ifdef TROUPE_FIBER_TSAN
  current_->tsan = __tsan_get_current_fiber();
#endif
}

FiberScheduler::~FiberScheduler() {
  for (const auto& fiber : fibers_) {
    // A fiber that never ended has live objects on its stack: their memory is left alone, like a detached thread's.
    if (fiber->stack != nullptr && fiber->done) free_stacks_.push_back(fiber->stack);
#ifdef TROUPE_FIBER_TSAN
    if (fiber->stack != nullptr && fiber->done) __tsan_destroy_fiber(fiber->tsan);
#endif
  }
  for (void* stack : free_stacks_) munmap(stack, kStackBytes + PageBytes());
}

std::unique_ptr<WaitQueue> FiberScheduler::NewWaitQueue() { return std::make_unique<FiberWaitQueue>(this); }

std::shared_ptr<Task> FiberScheduler::Start(std::string name, std::function<void()> body) {
  TROUPE_CHECK(std::this_thread::get_id() == owner_) << "a fiber can only be started on the fibers' own thread";
  fibers_.push_back(std::make_unique<Fiber>());
  Fiber* fiber = fibers_.back().get();
  fiber->name = std::move(name);
  fiber->body = std::move(body);
  fiber->ended = NewWaitQueue();
  if (free_stacks_.empty()) {
    fiber->stack = MapStack();
  } else {
    fiber->stack = free_stacks_.back();
    free_stacks_.pop_back();
  }
  TROUPE_CHECK_EQ(getcontext(&fiber->context), 0);
  fiber->context.uc_stack.ss_sp = static_cast<char*>(fiber->stack) + PageBytes();
  fiber->context.uc_stack.ss_size = kStackBytes;
  fiber->context.uc_link = nullptr;
  makecontext(&fiber->context, &FiberScheduler::Enter, 0);
#ifdef TROUPE_FIBER_ASAN
  // The frames of whoever ran here before never returned.
  __asan_unpoison_memory_region(fiber->context.uc_stack.ss_sp, kStackBytes);
  fiber->stack_bottom = fiber->context.uc_stack.ss_sp;
  fiber->stack_size = kStackBytes;
#endif
#ifdef TROUPE_FIBER_TSAN
  fiber->tsan = __tsan_create_fiber(0);
#endif
  runnable_.push_back(fiber);
  return std::make_shared<FiberTask>(this, fiber);
}

void FiberScheduler::Enter() {
  FiberScheduler* const scheduler = entering;
  Fiber* const self = scheduler->current_;
#ifdef TROUPE_FIBER_ASAN
  // The first fiber to switch learns its own stack from the one it comes to.
  Fiber* const main = scheduler->fibers_.front().get();
  const void* bottom = nullptr;
  size_t size = 0;
  __sanitizer_finish_switch_fiber(nullptr, &bottom, &size);
  if (main->stack_bottom == nullptr) {
    main->stack_bottom = bottom;
    main->stack_size = size;
  }
#endif
  self->body();
  self->body = nullptr;
  {
    const std::lock_guard<std::mutex> lock(self->mutex);
    self->done = true;
  }
  self->ended->NotifyAll();
  scheduler->SwitchAway();
  TROUPE_CHECK(false) << "a fiber that ended was resumed";
}

void FiberScheduler::SwitchAway() {
  Fiber* const from = current_;
  Fiber* const to = PickNext();
  if (to == from) return;
  current_ = to;
  entering = this;
#ifdef TROUPE_FIBER_ASAN
  __sanitizer_start_switch_fiber(from->done ? nullptr : &from->fake_stack, to->stack_bottom, to->stack_size);
#endif
#ifdef TROUPE_FIBER_TSAN
  __tsan_switch_to_fiber(to->tsan, 0);
#endif
  TROUPE_CHECK_EQ(swapcontext(&from->context, &to->context), 0);
#ifdef TROUPE_FIBER_ASAN
  __sanitizer_finish_switch_fiber(from->fake_stack, nullptr, nullptr);
#endif
}

FiberScheduler::Fiber* FiberScheduler::PickNext() {
  // Deadlines need the clock, which costs more than a switch: they are looked at now and then, and when nothing else is there.
  constexpr int kSwitchesBetweenClocks = 64;
  if (++switches_ % kSwitchesBetweenClocks == 0) WakeExpired();
  while (true) {
    DrainForeign();
    if (runnable_.empty()) WakeExpired();
    if (!runnable_.empty()) break;
    // A wait that ends soon of itself is somebody's poll, no deadlock.
    constexpr absl::Duration kSoon = absl::Milliseconds(100);
    const absl::Duration left = EarliestDeadline() - absl::Now();
    if (left > kSoon) WakeAllForDeadlock();
    if (!runnable_.empty()) break;
    std::unique_lock<std::mutex> lock(foreign_mutex_);  // only another thread, or time, can bring work
    if (!foreign_.empty()) continue;
    if (left > kSoon) {
      foreign_changed_.wait(lock);
    } else {
      foreign_changed_.wait_for(lock, absl::ToChronoNanoseconds(left));
    }
  }
  Fiber* const next = runnable_.front();
  runnable_.pop_front();
  return next;
}

void FiberScheduler::DrainForeign() {
  std::vector<std::shared_ptr<Waiters>> notified;
  {
    const std::lock_guard<std::mutex> lock(foreign_mutex_);
    notified.swap(foreign_);
  }
  for (const auto& waiters : notified) NotifyFromOwner(*waiters);
}

void FiberScheduler::WakeExpired() {
  const absl::Time now = absl::Now();
  for (const auto& fiber : fibers_) {
    if (fiber->waits_in != nullptr && !fiber->idle && fiber->deadline <= now) {
      MakeRunnable(fiber.get(), WaitQueue::WakeUp::kDeadline);
    }
  }
}

absl::Time FiberScheduler::EarliestDeadline() const {
  absl::Time earliest = absl::InfiniteFuture();
  for (const auto& fiber : fibers_) {
    if (fiber->waits_in != nullptr && !fiber->idle) earliest = std::min(earliest, fiber->deadline);
  }
  return earliest;
}

void FiberScheduler::WakeAllForDeadlock() {
  std::vector<std::string> waits;
  for (const auto& fiber : fibers_) {
    if (fiber->waits_in == nullptr || fiber->idle) continue;
    waits.push_back(absl::StrCat(fiber->name, " waits for ", (*fiber->what)()));
  }
  if (waits.empty()) return;
  deadlock_ = absl::StrCat("deadlock, nothing can run: ", absl::StrJoin(waits, "; "));
  for (const auto& fiber : fibers_) {
    if (fiber->waits_in != nullptr && !fiber->idle) MakeRunnable(fiber.get(), WaitQueue::WakeUp::kDeadlock);
  }
}

void FiberScheduler::MakeRunnable(Fiber* fiber, WaitQueue::WakeUp why) {
  auto& waiting = fiber->waits_in->fibers;
  waiting.erase(std::find(waiting.begin(), waiting.end(), fiber));
  fiber->waits_in = nullptr;
  fiber->why = why;
  runnable_.push_back(fiber);
}

void FiberScheduler::NotifyFromOwner(Waiters& waiters) {
  for (Fiber* fiber : waiters.fibers) {
    fiber->waits_in = nullptr;
    fiber->why = WaitQueue::WakeUp::kNotified;
    runnable_.push_back(fiber);
  }
  waiters.fibers.clear();
}

void FiberScheduler::Notify(const std::shared_ptr<Waiters>& waiters) {
  if (std::this_thread::get_id() == owner_) return NotifyFromOwner(*waiters);
  const std::lock_guard<std::mutex> lock(foreign_mutex_);
  foreign_.push_back(waiters);
  foreign_changed_.notify_all();
}

std::vector<TaskReport> FiberScheduler::Report() {
  std::vector<TaskReport> reports;
  for (const auto& fiber : fibers_) {
    if (fiber->done) continue;
    TaskReport report;
    report.name = fiber->name;
    if (fiber->what != nullptr) {
      report.waits_for = (*fiber->what)();
      report.since = fiber->since;
    }
    reports.push_back(std::move(report));
  }
  return reports;
}

}  // namespace troupe::runtime
