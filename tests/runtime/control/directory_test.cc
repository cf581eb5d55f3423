/// Coordinator and directories over real sockets; the test plays the agent, and says which processes are dead.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <condition_variable>
#include <mutex>
#include <random>
#include <thread>

#include "absl/strings/str_cat.h"
#include "runtime/control/client.h"
#include "runtime/control/coordinator.h"
#include "runtime/control/internal/connection.h"
#include "runtime/control/internal/wire.h"
#include "runtime/control/internal/zmq_socket.h"

namespace troupe::runtime {
namespace {

using internal::Connection;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr absl::Duration kPatience = absl::Seconds(60);

class Events final : public Directory::Listener {
 public:
  void OnNodeUp(const NodeAddress& node) override { Add(absl::StrCat("up ", node.rank)); }
  void OnNodeDown(const NodeAddress& node, const absl::Status& why) override {
    Add(absl::StrCat("down ", node.rank, ": ", why.message()));
  }
  void OnShutdown(const absl::Status& why) override { Add(absl::StrCat("shutdown: ", why.ToString())); }

  std::string Next() {
    std::unique_lock<std::mutex> lock(mutex_);
    if (!changed_.wait_for(lock, absl::ToChronoNanoseconds(kPatience), [&] { return next_ < events_.size(); })) return "";
    return events_[next_++];
  }

 private:
  void Add(std::string event) {
    const std::lock_guard<std::mutex> lock(mutex_);
    events_.push_back(std::move(event));
    changed_.notify_all();
  }
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::string> events_;
  size_t next_ = 0;
};

class DirectoryTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto coordinator = Coordinator::Start(CoordinatorOptions());
    ASSERT_TRUE(coordinator.ok()) << coordinator.status();
    coordinator_ = *std::move(coordinator);
    agent_ = Open("agent");
    launcher_ = Open("launcher");
    control::Message hello;
    hello.mutable_agent_hello()->set_protocol(internal::kControlProtocol);
    hello.mutable_agent_hello()->set_host("h");
    hello.mutable_agent_hello()->set_cores(2);
    ASSERT_TRUE(agent_->Ask(hello, kPatience).ok());
    control::Message job;
    job.mutable_submit_job()->add_command("recipe");
    job.mutable_submit_job()->set_num_workers(2);
    job.mutable_submit_job()->set_driver_agent("agent");
    const auto answer = launcher_->Ask(job, kPatience);
    ASSERT_TRUE(answer.ok()) << answer.status();
    epoch_ = answer->job_epoch();
  }

  std::unique_ptr<Connection> Open(const std::string& name) {
    internal::ConnectionOptions options;
    options.coordinator = coordinator_->endpoint();
    options.name = name;
    auto connection = Connection::Open(options, [](const control::Message&) {}, [](const absl::Status&) {});
    EXPECT_TRUE(connection.ok()) << connection.status();
    return *std::move(connection);
  }

  ProcessIdentity Identity(int node) const {
    ProcessIdentity identity;
    identity.role = node == 0 ? ProcessIdentity::Role::kDriver : ProcessIdentity::Role::kWorker;
    identity.node = node;
    identity.rank = node - 1;
    identity.job_epoch = epoch_;
    identity.num_workers = 2;
    identity.coordinator = coordinator_->endpoint();
    identity.endpoint = absl::StrCat("ipc://@test-", node);
    identity.host = "h";
    return identity;
  }
  std::unique_ptr<Directory> Connect(int node) const {
    auto directory = ConnectDirectory(Identity(node), "build", 1, kPatience);
    EXPECT_TRUE(directory.ok()) << directory.status();
    return directory.ok() ? *std::move(directory) : nullptr;
  }
  void Die(int node) {
    control::Message message;
    message.set_job_epoch(epoch_);
    message.mutable_process_exited()->set_node(node);
    message.mutable_process_exited()->set_incarnation(1);
    message.mutable_process_exited()->set_pid(getpid());
    message.mutable_process_exited()->set_signal(9);
    message.mutable_process_exited()->set_what("was killed by SIGKILL");
    agent_->Send(std::move(message));
  }

  std::unique_ptr<Coordinator> coordinator_;
  std::unique_ptr<Connection> agent_, launcher_;
  uint64_t epoch_ = 0;
};

TEST_F(DirectoryTest, ListenersHearOfThoseBeforeAndAfter) {
  Events events;
  const auto driver = Connect(0);
  const auto first = Connect(1);
  ASSERT_TRUE(driver->WaitForWorkers(1, absl::Now() + kPatience).ok());
  driver->Listen(&events);
  EXPECT_EQ(events.Next(), "up 0");
  const auto second = Connect(2);
  EXPECT_EQ(events.Next(), "up 1");
}

TEST_F(DirectoryTest, WaitForWorkersGivesTheirAddresses) {
  const auto driver = Connect(0);
  std::thread later([&] {
    const auto first = Connect(1);
    const auto second = Connect(2);
    EXPECT_TRUE(second->WaitForWorkers(2, absl::Now() + kPatience).ok()) << "a worker counts itself";
  });
  const auto workers = driver->WaitForWorkers(2, absl::Now() + kPatience);
  later.join();
  ASSERT_TRUE(workers.ok()) << workers.status();
  ASSERT_EQ(workers->size(), 2u);
  EXPECT_EQ((*workers)[1].rank, 1);
  EXPECT_EQ((*workers)[1].endpoint, "ipc://@test-2");
  EXPECT_EQ((*workers)[1].pid, getpid());
}

TEST_F(DirectoryTest, WaitForWorkersNamesWhoIsMissing) {
  const auto driver = Connect(0);
  const auto second = Connect(2);
  ASSERT_TRUE(driver != nullptr);
  const auto workers = driver->WaitForWorkers(2, absl::Now() + absl::Milliseconds(50));
  EXPECT_EQ(workers.status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(workers.status().message()), HasSubstr("missing: rank 0"));
}

TEST_F(DirectoryTest, DeathIsHeardByAllAndEndsTheWait) {
  Events events;
  const auto driver = Connect(0);
  const auto first = Connect(1);
  first->Listen(&events);
  EXPECT_EQ(events.Next(), "up -1");
  std::thread killer([&] { Die(2); });
  const auto workers = driver->WaitForWorkers(2, absl::Now() + kPatience);
  killer.join();
  EXPECT_EQ(workers.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(workers.status().message()), HasSubstr("rank 1 (host h, pid "));
  EXPECT_THAT(events.Next(), HasSubstr("was killed by SIGKILL"));
}

TEST_F(DirectoryTest, NamesWorkAcrossNodes) {
  const auto driver = Connect(0);
  const auto first = Connect(1);
  const ActorAddress counter = {1, 42, "Counter"};
  ASSERT_TRUE(first->RegisterName("c", counter).ok());
  const auto found = driver->LookUpName("c", absl::Now() + kPatience);
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(found->node, 1);
  EXPECT_EQ(found->actor, 42u);
  EXPECT_EQ(found->class_name, "Counter");
  EXPECT_EQ(driver->RegisterName("c", {0, 1, "Other"}).code(), absl::StatusCode::kAlreadyExists);
  EXPECT_TRUE(driver->RemoveName("c").ok());
  EXPECT_EQ(driver->LookUpName("c", absl::Now()).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(driver->SetMaxRestarts(9, 1).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(driver->SetMaxRestarts(1, 1).ok());
}

TEST_F(DirectoryTest, AnotherBuildIsRefused) {
  const auto driver = Connect(0);
  const auto refused = ConnectDirectory(Identity(1), "another", 1, kPatience);
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(refused.status().message()), HasSubstr("runs build another"));
  EXPECT_EQ(ConnectDirectory(Identity(1), "build", 2, kPatience).status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(DirectoryTest, CoordinatorThatDoesNotAnswerIsADeadline) {
  ProcessIdentity identity = Identity(0);
  identity.coordinator = absl::StrCat("ipc://@troupe-nobody-", RandomName());
  const auto directory = ConnectDirectory(identity, "build", 1, absl::Milliseconds(50));
  EXPECT_EQ(directory.status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(directory.status().message()), HasSubstr(identity.coordinator));
}

TEST_F(DirectoryTest, ShutdownReachesEveryNodeOnce) {
  Events events, late_events;
  const auto driver = Connect(0);
  driver->Listen(&events);
  control::Message cancel;
  cancel.set_job_epoch(epoch_);
  *cancel.mutable_cancel_job()->mutable_why() = internal::ToControl(absl::CancelledError("interrupted by SIGINT"));
  launcher_->Send(cancel);
  EXPECT_EQ(events.Next(), "shutdown: CANCELLED: interrupted by SIGINT");
  const auto late = Connect(1);
  late->Listen(&late_events);
  EXPECT_EQ(late_events.Next(), "up -1");
  EXPECT_EQ(late_events.Next(), "shutdown: CANCELLED: interrupted by SIGINT");
}

TEST_F(DirectoryTest, RandomBytesAreRefusedAndTheCoordinatorGoesOn) {
  internal::ZmqSocket noise(internal::ZmqSocket::Kind::kDealer);
  noise.SetRoutingName("noise");
  noise.SetLinger(kPatience);
  ASSERT_TRUE(noise.Connect(coordinator_->endpoint()).ok());
  std::mt19937 random(7);
  for (int i = 0; i < 50; ++i) {
    std::string bytes(random() % 200, '\0');
    for (char& byte : bytes) byte = static_cast<char>(random());
    ASSERT_TRUE(noise.Send({bytes}).ok());
    ASSERT_TRUE(noise.Send({bytes, "a second part"}).ok());
  }
  const std::string huge(internal::kMaxControlBytes * 2, 'x');
  ASSERT_TRUE(noise.Send({huge}).ok());
  EXPECT_NE(Connect(0), nullptr);
}

TEST(CoordinatorTest, AddressesThatOthersCouldReachAreRefused) {
  for (const char* endpoint : {"tcp://0.0.0.0:6380", "tcp://*:6380", "ipc:///tmp/file"}) {
    CoordinatorOptions options;
    options.endpoint = endpoint;
    EXPECT_EQ(Coordinator::Start(options).status().code(), absl::StatusCode::kInvalidArgument) << endpoint;
  }
}

TEST(CoordinatorTest, SilentCoordinatorOfAnotherHostIsLostAndQuestionsEnd) {
  // A socket of which nobody reads: as a host that has vanished.
  internal::ZmqSocket mute(internal::ZmqSocket::Kind::kRouter);
  const int port = 20000 + static_cast<int>(getpid() % 20000);
  const std::string endpoint = absl::StrCat("tcp://127.0.0.1:", port);
  ASSERT_TRUE(mute.Bind(endpoint).ok());
  internal::ConnectionOptions options;
  options.coordinator = endpoint;
  options.name = "agent";
  options.heartbeat = absl::Milliseconds(20);
  options.lease = absl::Milliseconds(100);
  Events events;
  auto connection = Connection::Open(
      options, [](const control::Message&) {}, [&](const absl::Status& why) { events.OnShutdown(why); });
  ASSERT_TRUE(connection.ok());
  control::Message question;
  question.mutable_remove_name()->set_name("x");
  const auto answer = (*connection)->Ask(question, kPatience);
  EXPECT_EQ(answer.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(events.Next(), HasSubstr("has been silent for"));
}

TEST(IdentityTest, EnvironmentComesBack) {
  EXPECT_FALSE(IdentityFromEnvironment()->has_value());
  ProcessIdentity identity;
  identity.role = ProcessIdentity::Role::kWorker;
  identity.node = 3;
  identity.incarnation = 2;
  identity.job_epoch = 0xffffffffffffffff;
  identity.rank = 2;
  identity.num_workers = 4;
  identity.mesh = "2x2";
  identity.coordinator = "ipc://@c";
  identity.endpoint = "ipc://@e";
  identity.host = "h";
  identity.job_dir = "/d";
  std::vector<std::string> variables = EnvironmentOf(identity);
  for (std::string& variable : variables) {
    EXPECT_TRUE(IsIdentityVariable(variable)) << variable;
    putenv(variable.data());
  }
  const auto back = IdentityFromEnvironment();
  ASSERT_TRUE(back.ok()) << back.status();
  ASSERT_TRUE(back->has_value());
  EXPECT_EQ(EnvironmentOf(**back), EnvironmentOf(identity));
  setenv("TROUPE_RANK", "two", 1);
  EXPECT_THAT(std::string(IdentityFromEnvironment().status().message()), HasSubstr("TROUPE_RANK is \"two\""));
  unsetenv("TROUPE_RANK");
  EXPECT_FALSE(IdentityFromEnvironment().ok());
  for (const std::string& variable : variables) unsetenv(variable.substr(0, variable.find('=')).c_str());
  EXPECT_FALSE(IsIdentityVariable("TROUPE_LOG=debug"));
}

}  // namespace
}  // namespace troupe::runtime
