#include "runtime/job/job.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "runtime/job/build_id.h"

namespace troupe::runtime {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr absl::Duration kGenerous = absl::Minutes(2);

std::vector<std::string>* journal = nullptr;

class Player {
 public:
  explicit Player(std::string name) : name_(std::move(name)) {}
  int Play(int depth, const ActorHandle<Player>& next) {
    if (journal != nullptr) journal->push_back(absl::StrCat(name_, depth));
    if (depth == 0) return 0;
    const auto below = next.Call<&Player::Play>(depth - 1, ActorHandle<Player>()).Get(kGenerous);
    return below.ok() ? *below + 1 : -1000;
  }
  bool OnThisThread(int64_t thread) { return static_cast<int64_t>(gettid()) == thread; }
  /// Waits for itself.
  absl::StatusOr<int> Deadlock(const ActorHandle<Player>& self) {
    return self.Call<&Player::Play>(0, self).Get(kGenerous);
  }

 private:
  std::string name_;
};
TROUPE_ACTOR(Player, &Player::Play, &Player::OnThisThread, &Player::Deadlock);

JobOptions Options(int workers, bool deterministic) {
  JobOptions options;
  options.num_workers = workers;
  options.deterministic = deterministic;
  options.default_timeout = kGenerous;
  return options;
}

class JobTest : public ::testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(Both, JobTest, ::testing::Bool(),
                         [](const auto& param) { return param.param ? "Fibers" : "Threads"; });

TEST_P(JobTest, SpawnsCallsLooksUpAndShutsDown) {
  const auto job = Job::Start(Options(2, GetParam()));
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_TRUE((*job)->local());
  EXPECT_EQ((*job)->num_workers(), 2);
  EXPECT_EQ((*job)->workers().size(), 2);
  Job::RunWorkerIfAsked();
  const auto a = (*job)->Spawn<Player>({.name = "a", .rank = 0}, "a");
  const auto b = (*job)->Spawn<Player>({.name = "b", .rank = 1}, "b");
  ASSERT_TRUE(a.ok() && b.ok());
  EXPECT_EQ(*a->Call<&Player::Play>(1, *b).Get(kGenerous), 1);
  EXPECT_TRUE((*job)->Lookup<Player>("b", kGenerous).ok());
  EXPECT_EQ((*job)->Report(1, kGenerous)->actors.size(), 1);
  EXPECT_EQ(*a->Call<&Player::OnThisThread>(int64_t{gettid()}).Get(kGenerous), GetParam());
  EXPECT_TRUE((*job)->Shutdown().ok());
  const auto after = a->Call<&Player::Play>(0, *b).Get(kGenerous);
  EXPECT_EQ(after.status().code(), absl::StatusCode::kCancelled);
}

TEST_P(JobTest, ADriverThatLeavesEndsActorsThatWait) {
  ObjectRef<int> waits;
  {
    const auto job = Job::Start(Options(1, GetParam()));
    ASSERT_TRUE(job.ok());
    const auto a = (*job)->Spawn<Player>({.rank = 0}, "a");
    waits = a->Call<&Player::Deadlock>(*a);
  }
  EXPECT_FALSE(waits.Get(kGenerous).ok());
}

TEST(DeterministicJobTest, RunsInTheSameOrderEveryTime) {
  std::vector<std::vector<std::string>> runs;
  for (int round = 0; round < 3; ++round) {
    std::vector<std::string> steps;
    journal = &steps;
    const auto job = Job::Start(Options(3, true));
    ASSERT_TRUE(job.ok());
    std::vector<ActorHandle<Player>> players;
    for (int rank = 0; rank < 3; ++rank) {
      players.push_back(*(*job)->Spawn<Player>({.rank = rank}, absl::StrCat("p", rank, ":")));
    }
    std::vector<ObjectRef<int>> calls;
    for (int i = 0; i < 6; ++i) calls.push_back(players[static_cast<size_t>(i % 2)].Call<&Player::Play>(1, players[2]));
    EXPECT_THAT(*WhenAll(calls, kGenerous), ElementsAre(1, 1, 1, 1, 1, 1));
    journal = nullptr;
    runs.push_back(steps);
  }
  EXPECT_EQ(runs[0].size(), 12);
  EXPECT_EQ(runs[0], runs[1]);
  EXPECT_EQ(runs[0], runs[2]);
}

TEST(DeterministicJobTest, ADeadlockIsAnErrorThatNamesWhoWaits) {
  const auto job = Job::Start(Options(1, true));
  ASSERT_TRUE(job.ok());
  const auto a = (*job)->Spawn<Player>({.name = "narcissus", .rank = 0}, "a");
  const auto status = a->Call<&Player::Deadlock>(*a).Get(kGenerous).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("driver waits for narcissus (rank 0"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("; narcissus waits for narcissus (rank 0"));
}

TEST(InterruptTest, TheFirstCtrlCIsToldAndTheSecondEndsTheProcess) {
  // In a child, because it ends.
  ASSERT_EXIT(
      {
        const auto job = Job::Start(Options(1, false));
        std::mutex mutex;
        std::condition_variable told;
        bool was_told = false;
        (*job)->OnInterrupt([&] {
          const std::lock_guard<std::mutex> lock(mutex);
          was_told = true;
          told.notify_all();
        });
        if ((*job)->interrupted()) _exit(3);
        raise(SIGINT);
        {
          std::unique_lock<std::mutex> lock(mutex);
          told.wait(lock, [&] { return was_told; });
        }
        if (!(*job)->interrupted()) _exit(4);
        raise(SIGINT);
        _exit(5);
      },
      ::testing::ExitedWithCode(130), "interrupted");
}

TEST(JobStartTest, NeedsAWorker) {
  EXPECT_EQ(Job::Start(Options(0, false)).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(BuildIdTest, IsTheSameForTheSameProgram) {
  EXPECT_GE(BuildId().size(), 16);
  EXPECT_EQ(BuildId(), BuildId());
}

}  // namespace
}  // namespace troupe::runtime

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  ::testing::GTEST_FLAG(death_test_style) = "threadsafe";
  return RUN_ALL_TESTS();
}
