#include "runtime/sched/scheduler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "runtime/sched/fiber_scheduler.h"
#include "runtime/sched/thread_scheduler.h"

namespace troupe::runtime {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

absl::Time Generous() { return absl::Now() + absl::Minutes(2); }

/// A flag that tasks wait for.
class Flag {
 public:
  explicit Flag(Scheduler& scheduler) : scheduler_(scheduler), queue_(scheduler.NewWaitQueue()) {}
  void Set() {
    const std::lock_guard<std::mutex> lock(mutex_);
    set_ = true;
    queue_->NotifyAll();
  }
  absl::Status Wait(absl::Time deadline, const std::string& name = "the flag") {
    std::unique_lock<std::mutex> lock(mutex_);
    return WaitUntil(
        scheduler_, *queue_, lock, deadline, [&] { return name; }, [&] { return set_; });
  }

 private:
  Scheduler& scheduler_;
  std::mutex mutex_;
  bool set_ = false;
  std::unique_ptr<WaitQueue> queue_;
};

class SchedulerTest : public ::testing::TestWithParam<bool> {
 protected:
  std::unique_ptr<Scheduler> Make() const {
    if (GetParam()) return std::make_unique<FiberScheduler>();
    return std::make_unique<ThreadScheduler>();
  }
};

TEST_P(SchedulerTest, TasksWakeEachOther) {
  const auto scheduler = Make();
  Flag first(*scheduler);
  Flag second(*scheduler);
  auto a = scheduler->Start("a", [&] {
    EXPECT_TRUE(first.Wait(Generous()).ok());
    second.Set();
  });
  auto b = scheduler->Start("b", [&] { first.Set(); });
  EXPECT_TRUE(second.Wait(Generous()).ok());
  EXPECT_TRUE(a->Join(Generous()));
  EXPECT_TRUE(b->Join(Generous()));
}

TEST_P(SchedulerTest, AWaitEndsAtItsDeadlineAndNamesWhatItWaitedFor) {
  const auto scheduler = Make();
  Flag never(*scheduler);
  const absl::Status status = never.Wait(absl::Now() - absl::Seconds(1), "the reply of trainer[1]");
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(status.message()), HasSubstr("the reply of trainer[1]"));
}

TEST_P(SchedulerTest, AThreadOfItsOwnMayNotify) {
  const auto scheduler = Make();
  Flag flag(*scheduler);
  Flag idle(*scheduler);
  std::thread other([&] { flag.Set(); });
  other.join();
  EXPECT_TRUE(flag.Wait(Generous()).ok());
}

TEST_P(SchedulerTest, ManyTasksRunDeepStacks) {
  const auto scheduler = Make();
  Flag start(*scheduler);
  std::vector<std::shared_ptr<Task>> tasks;
  std::vector<int> sums(20);
  for (size_t i = 0; i < sums.size(); ++i) {
    tasks.push_back(scheduler->Start("task", [&, i] {
      EXPECT_TRUE(start.Wait(Generous()).ok());
      std::function<int(int)> deep = [&](int n) {
        volatile char page[1024] = {1};
        return n == 0 ? 0 : page[0] + deep(n - 1);
      };
      sums[i] = deep(1000);
    }));
  }
  start.Set();
  for (const auto& task : tasks) EXPECT_TRUE(task->Join(Generous()));
  EXPECT_THAT(sums, ::testing::Each(1000));
}

INSTANTIATE_TEST_SUITE_P(Both, SchedulerTest, ::testing::Bool(),
                         [](const auto& param) { return param.param ? "Fibers" : "Threads"; });

TEST(FiberSchedulerTest, RunsInTheSameOrderEveryTime) {
  for (int round = 0; round < 3; ++round) {
    FiberScheduler scheduler;
    std::vector<int> order;
    std::vector<std::unique_ptr<Flag>> turns;
    for (int i = 0; i < 3; ++i) turns.push_back(std::make_unique<Flag>(scheduler));
    std::vector<std::shared_ptr<Task>> tasks;
    for (int i = 0; i < 3; ++i) {
      tasks.push_back(scheduler.Start("task", [&, i] {
        order.push_back(i);
        turns[static_cast<size_t>(i)]->Set();
        EXPECT_TRUE(turns[static_cast<size_t>((i + 1) % 3)]->Wait(Generous()).ok());
        order.push_back(10 + i);
      }));
    }
    for (const auto& task : tasks) EXPECT_TRUE(task->Join(Generous()));
    EXPECT_THAT(order, ElementsAre(0, 1, 2, 12, 10, 11));
  }
}

TEST(FiberSchedulerTest, ADeadlockNamesWhoWaitsForWhat) {
  FiberScheduler scheduler;
  Flag a(scheduler);
  Flag b(scheduler);
  absl::Status inner;
  auto task = scheduler.Start("trainer[0]", [&] { inner = a.Wait(Generous(), "a reply of the driver"); });
  const absl::Status status = b.Wait(Generous(), "a reply of trainer[0]");
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("driver waits for a reply of trainer[0]"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("trainer[0] waits for a reply of the driver"));
  EXPECT_TRUE(task->Join(Generous()));
  EXPECT_EQ(inner.code(), absl::StatusCode::kFailedPrecondition);
}

TEST(FiberSchedulerTest, AnIdleTaskIsNoDeadlock) {
  FiberScheduler scheduler;
  std::mutex mutex;
  bool stop = false;
  const auto queue = scheduler.NewWaitQueue();
  auto idle = scheduler.Start("idle", [&] {
    std::unique_lock<std::mutex> lock(mutex);
    while (!stop) queue->WaitIdle(lock);
  });
  Flag never(scheduler);
  const absl::Status status = never.Wait(Generous(), "nothing");
  EXPECT_THAT(std::string(status.message()), HasSubstr("driver waits for nothing"));
  EXPECT_THAT(std::string(status.message()), ::testing::Not(HasSubstr("idle")));
  {
    const std::lock_guard<std::mutex> lock(mutex);
    stop = true;
    queue->NotifyAll();
  }
  EXPECT_TRUE(idle->Join(Generous()));
}

TEST(ThreadSchedulerTest, ReportsWhatEveryTaskWaitsFor) {
  ThreadScheduler scheduler;
  Flag started(scheduler);
  Flag go(scheduler);
  auto task = scheduler.Start("trainer[3]", [&] {
    started.Set();
    EXPECT_TRUE(go.Wait(Generous(), "the go").ok());
  });
  EXPECT_TRUE(started.Wait(Generous()).ok());
  std::string waits_for;
  while (waits_for.empty()) {
    for (const TaskReport& report : scheduler.Report()) {
      EXPECT_EQ(report.name, "trainer[3]");
      waits_for = report.waits_for;
    }
  }
  EXPECT_EQ(waits_for, "the go");
  go.Set();
  EXPECT_TRUE(task->Join(Generous()));
}

}  // namespace
}  // namespace troupe::runtime
