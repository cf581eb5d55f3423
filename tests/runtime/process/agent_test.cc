/// Coordinator and agent with real processes: shell scripts that know nothing of us but their environment.
#include "runtime/process/agent.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <condition_variable>
#include <deque>
#include <filesystem>
#include <mutex>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "runtime/control/coordinator.h"
#include "runtime/control/internal/connection.h"
#include "runtime/control/internal/wire.h"

namespace troupe::runtime {
namespace {

using ::testing::HasSubstr;

constexpr absl::Duration kPatience = absl::Seconds(60);

class AgentTest : public ::testing::Test {
 protected:
  void SetUp() override {
    char path[] = "/tmp/agent_test.XXXXXX";
    ASSERT_NE(mkdtemp(path), nullptr);
    directory_ = path;
    StartCluster(CoordinatorOptions());
  }
  void StartCluster(const CoordinatorOptions& coordinator_options) {
    auto coordinator = Coordinator::Start(coordinator_options);
    ASSERT_TRUE(coordinator.ok()) << coordinator.status();
    coordinator_ = *std::move(coordinator);
    AgentOptions options;
    options.coordinator = coordinator_->endpoint();
    auto agent = Agent::Start(options);
    ASSERT_TRUE(agent.ok()) << agent.status();
    agent_ = *std::move(agent);
    internal::ConnectionOptions launcher;
    launcher.coordinator = coordinator_->endpoint();
    launcher.name = "launcher";
    auto connection = internal::Connection::Open(
        launcher,
        [this](const control::Message& message) {
          const std::lock_guard<std::mutex> lock(mutex_);
          messages_.push_back(message);
          changed_.notify_all();
        },
        [](const absl::Status&) {});
    ASSERT_TRUE(connection.ok());
    launcher_ = *std::move(connection);
  }
  void TearDownCluster() {
    launcher_.reset();
    agent_.reset();
    coordinator_.reset();
  }
  void TearDown() override {
    TearDownCluster();
    std::filesystem::remove_all(directory_);
  }

  /// A job whose driver and workers run these commands of the shell.
  void Submit(const std::string& driver, const std::string& worker, int workers = 1) {
    Submit(std::vector<std::string>{
               "/bin/sh", "-c", absl::StrCat("if [ $TROUPE_ROLE = driver ]; then ", driver, "; else ", worker, "; fi")},
           workers);
  }
  void Submit(const std::vector<std::string>& command, int workers) {
    control::Message message;
    message.mutable_submit_job()->mutable_command()->Add(command.begin(), command.end());
    message.mutable_submit_job()->set_working_directory(directory_);
    message.mutable_submit_job()->set_num_workers(workers);
    message.mutable_submit_job()->set_job_dir(directory_);
    message.mutable_submit_job()->set_driver_agent(agent_->name());
    const auto answer = launcher_->Ask(message, kPatience);
    ASSERT_TRUE(answer.ok()) << answer.status();
    epoch_ = answer->job_epoch();
  }

  control::Message Next(const std::function<bool(const control::Message&)>& wanted) {
    std::unique_lock<std::mutex> lock(mutex_);
    while (true) {
      if (!changed_.wait_for(lock, absl::ToChronoNanoseconds(kPatience), [&] { return !messages_.empty(); })) return {};
      const control::Message message = messages_.front();
      messages_.pop_front();
      if (wanted(message)) return message;
    }
  }
  /// The first line that a worker prints which begins so, without that.
  std::string Line(const std::string& start) {
    std::string found;
    Next([&](const control::Message& message) {
      for (const std::string& line : message.log_lines().lines()) {
        if (absl::StartsWith(line, start)) found = line.substr(start.size());
      }
      return !found.empty();
    });
    return found;
  }
  control::JobEnded End() {
    return Next([](const control::Message& message) { return message.has_job_ended(); }).job_ended();
  }

  static int Watch(const std::string& pid) {
    int number = 0;
    EXPECT_TRUE(absl::SimpleAtoi(pid, &number)) << pid;
    const int fd = static_cast<int>(syscall(SYS_pidfd_open, number, 0));
    EXPECT_GE(fd, 0);
    return fd;
  }
  static bool Ends(int watch) {
    pollfd fd = {watch, POLLIN, 0};
    const bool ended = poll(&fd, 1, static_cast<int>(absl::ToInt64Milliseconds(kPatience))) == 1;
    close(watch);
    return ended;
  }

  std::string directory_;
  std::unique_ptr<Coordinator> coordinator_;
  std::unique_ptr<Agent> agent_;
  std::unique_ptr<internal::Connection> launcher_;
  uint64_t epoch_ = 0;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<control::Message> messages_;
};

TEST_F(AgentTest, ProcessesKnowWhoTheyAre) {
  Submit("read line; exit 0", "echo I am $TROUPE_ROLE $TROUPE_RANK of $TROUPE_NUM_WORKERS, node $TROUPE_NODE.$TROUPE_INCARNATION", 2);
  EXPECT_THAT(Line("I am worker "), ::testing::AnyOf("0 of 2, node 1.1", "1 of 2, node 2.1"));
}

TEST_F(AgentTest, DriversExitStatusIsTheJobs) {
  Submit("exit 9", "exec sleep 1000");
  EXPECT_EQ(End().exit_code(), 9);
}

TEST_F(AgentTest, WorkerThatWillNotEndIsKilled) {
  Submit("while [ ! -e ready ]; do :; done; exit 0", "trap '' TERM; echo pid $$; touch ready; while :; do sleep 1000; done");
  const int watch = Watch(Line("pid "));
  EXPECT_EQ(End().exit_code(), 0);
  EXPECT_TRUE(Ends(watch));
}

TEST_F(AgentTest, StoppedWorkerIsEndedToo) {
  Submit("while [ ! -e ready ]; do :; done; exit 4", "echo pid $$; touch ready; kill -STOP $$");
  const int watch = Watch(Line("pid "));
  EXPECT_EQ(End().exit_code(), 4);
  EXPECT_TRUE(Ends(watch));
}

TEST_F(AgentTest, ChildrenOfAWorkerGoWithIt) {
  Submit("while [ ! -e ready ]; do :; done; exit 0", "sleep 1000 & echo pid $!; touch ready; wait");
  const int watch = Watch(Line("pid "));
  EXPECT_EQ(End().exit_code(), 0);
  EXPECT_TRUE(Ends(watch));
}

TEST_F(AgentTest, DeathIsReportedWithSignalAndLastLines) {
  Submit("exec sleep 1000", "echo first; printf 'and last'; kill -SEGV $$");
  const control::NodeDown down = Next([](const auto& message) { return message.has_node_down(); }).node_down();
  EXPECT_TRUE(down.ends_job());
  EXPECT_THAT(down.why().message(), HasSubstr("was killed by SIGSEGV"));
  EXPECT_THAT(down.why().message(), HasSubstr(absl::StrCat("rank 0 (host ", agent_->host(), ", pid ")));
  EXPECT_THAT(down.last_lines(), ::testing::ElementsAre("first", "and last"));
  EXPECT_EQ(down.log_file(), directory_ + "/worker-0.log");
}

TEST_F(AgentTest, ProgramThatCannotRunEndsTheJob) {
  Submit(std::vector<std::string>{directory_ + "/none"}, 1);
  const control::JobEnded end = End();
  EXPECT_NE(end.exit_code(), 0);
  EXPECT_THAT(end.why().message(), HasSubstr("could not be started: cannot execute"));
}

TEST_F(AgentTest, EndOfTheAgentIsTheEndOfItsProcesses) {
  Submit("exec sleep 1000", "trap '' TERM; echo pid $$; while :; do sleep 1000; done");
  const int watch = Watch(Line("pid "));
  agent_.reset();
  EXPECT_TRUE(Ends(watch));
}

TEST_F(AgentTest, WhenACoordinatorElsewhereIsGoneItsProcessesAre) {
  TearDownCluster();
  // Over tcp nothing but silence tells that the other side is gone.
  CoordinatorOptions options;
  options.endpoint = absl::StrCat("tcp://127.0.0.1:", 20000 + getpid() % 20000);
  StartCluster(options);
  Submit("exec sleep 1000", "echo pid $$; exec sleep 1000");
  const int watch = Watch(Line("pid "));
  coordinator_.reset();
  EXPECT_TRUE(Ends(watch));
}

TEST_F(AgentTest, NoAgentWithoutACoordinator) {
  AgentOptions options;
  options.coordinator = absl::StrCat("ipc://@troupe-nobody-", RandomName());
  options.join_timeout = absl::Milliseconds(50);
  EXPECT_EQ(Agent::Start(options).status().code(), absl::StatusCode::kDeadlineExceeded);
}

}  // namespace
}  // namespace troupe::runtime
