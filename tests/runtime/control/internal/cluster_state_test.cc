#include "runtime/control/internal/cluster_state.h"

#include <gmock/gmock.h>
#include <google/protobuf/descriptor.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <random>
#include <set>

#include "absl/strings/str_cat.h"

namespace troupe::runtime::internal {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr char kAgent[] = "agent";
constexpr char kLauncher[] = "launcher";
constexpr uint64_t kFirstEpoch = 77;

std::string PeerOf(int node) { return absl::StrCat("node", node); }

/// A cluster of one or more agents, whose messages the test plays.
class ClusterStateTest : public ::testing::Test {
 protected:
  ClusterStateTest() : state_(Options()) {}

  static ClusterOptions Options() {
    ClusterOptions options;
    options.first_job_epoch = kFirstEpoch;
    return options;
  }

  absl::Status Send(const std::string& peer, control::Message message, uint64_t epoch = kFirstEpoch) {
    if (message.job_epoch() == 0) message.set_job_epoch(epoch);
    const absl::Status status = state_.Handle(peer, message, now_);
    for (Outgoing& out : state_.TakeOutgoing()) sent_[out.peer].push_back(std::move(out.message));
    return status;
  }
  void Advance(absl::Duration by) {
    now_ += by;
    state_.Tick(now_);
    for (Outgoing& out : state_.TakeOutgoing()) sent_[out.peer].push_back(std::move(out.message));
  }
  std::vector<control::Message> Take(const std::string& peer) { return std::exchange(sent_[peer], {}); }

  void Join(const std::string& agent, int cores = 2) {
    control::Message message;
    message.mutable_agent_hello()->set_protocol(kControlProtocol);
    message.mutable_agent_hello()->set_host(agent + "-host");
    message.mutable_agent_hello()->set_cores(cores);
    EXPECT_TRUE(Send(agent, message).ok());
    Take(agent);
  }
  absl::Status Submit(int workers) {
    control::Message message;
    message.set_request(1);
    message.mutable_submit_job()->add_command("recipe");
    message.mutable_submit_job()->set_num_workers(workers);
    message.mutable_submit_job()->set_driver_agent(kAgent);
    return Send(kLauncher, message);
  }
  absl::Status Hello(int node, uint32_t incarnation = 1, const std::string& build = "b", uint64_t signatures = 5,
                     int64_t pid = 0) {
    control::Message message;
    message.set_request(2);
    control::NodeHello& hello = *message.mutable_node_hello();
    hello.set_protocol(kControlProtocol);
    hello.mutable_node()->set_id(node);
    hello.mutable_node()->set_incarnation(incarnation);
    hello.mutable_node()->set_rank(node - 1);
    hello.mutable_node()->set_endpoint("ipc://@x");
    hello.mutable_node()->set_host("agent-host");
    hello.mutable_node()->set_pid(pid == 0 ? 1000 + node : pid);
    hello.set_build_id(build);
    hello.set_signature_hash(signatures);
    return Send(pid == 0 ? PeerOf(node) : "impostor", message);
  }
  absl::Status Exit(int node, int signal, int code, uint32_t incarnation = 1, const std::string& agent = kAgent) {
    control::Message message;
    control::ProcessExited& exited = *message.mutable_process_exited();
    exited.set_node(node);
    exited.set_incarnation(incarnation);
    exited.set_pid(1000 + node);
    exited.set_signal(signal);
    exited.set_exit_code(code);
    exited.set_what(signal != 0 ? "was killed" : "exited");
    exited.add_last_lines("last line");
    return Send(agent, message);
  }
  /// A job of `workers` whose nodes are all up.
  void StartJob(int workers) {
    Join(kAgent);
    ASSERT_TRUE(Submit(workers).ok());
    for (int node = 0; node <= workers; ++node) ASSERT_TRUE(Hello(node).ok());
    for (auto& [peer, messages] : sent_) messages.clear();
  }

  ClusterState state_;
  absl::Time now_ = absl::UnixEpoch() + absl::Hours(1);
  std::map<std::string, std::vector<control::Message>> sent_;
};

TEST_F(ClusterStateTest, JobNeedsTheDriversAgent) {
  EXPECT_EQ(Submit(1).code(), absl::StatusCode::kFailedPrecondition);
  const auto answers = Take(kLauncher);
  ASSERT_EQ(answers.size(), 1u);
  EXPECT_THAT(answers[0].answer().status().message(), HasSubstr("the driver's agent agent is not there"));
}

TEST_F(ClusterStateTest, WorkersShareHostsAsFarAsTheirCoresGo) {
  Join(kAgent, 2);
  Join("other", 1);
  ASSERT_TRUE(Submit(5).ok());
  const auto ranks = [&](const std::string& agent) {
    std::vector<int> out;
    for (const auto& message : Take(agent)) out.push_back(message.start_process().node().rank());
    return out;
  };
  EXPECT_THAT(ranks(kAgent), ::testing::ElementsAre(-1, 0, 1, 3, 4));
  EXPECT_THAT(ranks("other"), ::testing::ElementsAre(2));
}

TEST_F(ClusterStateTest, EveryNodeHearsOfEveryOtherOnce) {
  Join(kAgent);
  ASSERT_TRUE(Submit(2).ok());
  for (const int node : {1, 0, 2}) ASSERT_TRUE(Hello(node).ok());
  for (int node = 0; node <= 2; ++node) {
    std::multiset<int> heard;
    for (const auto& message : Take(PeerOf(node))) {
      if (message.has_node_up()) heard.insert(message.node_up().node().id());
    }
    std::multiset<int> others = {0, 1, 2};
    others.erase(node);
    EXPECT_EQ(heard, others) << "node " << node;
  }
}

TEST_F(ClusterStateTest, AnotherBuildIsRefusedNamingBoth) {
  Join(kAgent);
  ASSERT_TRUE(Submit(2).ok());
  ASSERT_TRUE(Hello(0, 1, "aaa").ok());
  const absl::Status refused = Hello(1, 1, "bbb");
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("rank 0 (host agent-host, pid 1001) runs build bbb, the driver"));
  EXPECT_THAT(std::string(refused.message()), HasSubstr("runs aaa"));
  ASSERT_FALSE(Take(PeerOf(1)).empty());
}

TEST_F(ClusterStateTest, OtherActorMethodsAreRefused) {
  Join(kAgent);
  ASSERT_TRUE(Submit(1).ok());
  ASSERT_TRUE(Hello(0, 1, "b", 5).ok());
  EXPECT_EQ(Hello(1, 1, "b", 6).code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(ClusterStateTest, UnexpectedNodesAreRefused) {
  StartJob(1);
  EXPECT_EQ(Hello(7).code(), absl::StatusCode::kFailedPrecondition) << "never started";
  EXPECT_EQ(Hello(1, 2).code(), absl::StatusCode::kFailedPrecondition) << "of an incarnation that was not started";
  EXPECT_EQ(Hello(1, 1, "b", 5, 4321).code(), absl::StatusCode::kFailedPrecondition) << "a second process for the same node";
}

TEST_F(ClusterStateTest, MessagesOfAnotherJobAreRefused) {
  StartJob(1);
  control::Message message;
  message.set_job_epoch(kFirstEpoch + 1);
  message.mutable_remove_name()->set_name("x");
  EXPECT_EQ(Send(PeerOf(1), message).code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(ClusterStateTest, LostWorkerIsToldToAllAndTheDriverGetsAMoment) {
  StartJob(2);
  ASSERT_TRUE(Exit(2, SIGKILL, 0).ok());
  for (const int node : {0, 1}) {
    const auto heard = Take(PeerOf(node));
    ASSERT_EQ(heard.size(), 1u);
    EXPECT_EQ(heard[0].node_down().node().rank(), 1);
    EXPECT_EQ(heard[0].node_down().why().message(), "rank 1 (host agent-host, pid 1002) was killed");
  }
  const auto to_launcher = Take(kLauncher);
  ASSERT_EQ(to_launcher.size(), 1u);
  EXPECT_TRUE(to_launcher[0].node_down().ends_job());
  EXPECT_EQ(to_launcher[0].node_down().last_lines(0), "last line");
  const auto to_agent = Take(kAgent);
  ASSERT_EQ(to_agent.size(), 1u);
  EXPECT_EQ(to_agent[0].stop_process().node(), 0);
  EXPECT_EQ(to_agent[0].stop_process().terminate_after_ms(), 1000);

  ASSERT_TRUE(Exit(0, 0, 0).ok());
  ASSERT_TRUE(Exit(1, 0, 0).ok());
  const auto end = Take(kLauncher);
  ASSERT_EQ(end.size(), 1u);
  EXPECT_EQ(end[0].job_ended().exit_code(), 1) << "whatever the driver says";
}

TEST_F(ClusterStateTest, WorkersThatDieOfTheFirstLossAreNotTheReason) {
  StartJob(2);
  ASSERT_TRUE(Exit(2, SIGKILL, 0).ok());
  ASSERT_TRUE(Exit(1, 0, 1).ok());
  const auto heard = Take(kLauncher);
  ASSERT_EQ(heard.size(), 2u);
  EXPECT_TRUE(heard[0].node_down().ends_job());
  EXPECT_FALSE(heard[1].node_down().ends_job());
}

TEST_F(ClusterStateTest, RestartsWithinTheBudgetThenEnds) {
  StartJob(2);
  control::Message message;
  message.set_request(9);
  message.mutable_set_max_restarts()->set_node(1);
  message.mutable_set_max_restarts()->set_max_restarts(1);
  ASSERT_TRUE(Send(PeerOf(0), message).ok());
  Take(PeerOf(0));

  ASSERT_TRUE(Exit(1, SIGSEGV, 0).ok());
  auto to_agent = Take(kAgent);
  ASSERT_EQ(to_agent.size(), 1u);
  EXPECT_EQ(to_agent[0].start_process().node().incarnation(), 2u);
  EXPECT_TRUE(Take(PeerOf(0))[0].node_down().restarts());
  ASSERT_TRUE(Hello(1, 2).ok());
  EXPECT_EQ(Take(PeerOf(2)).back().node_up().node().incarnation(), 2u);
  EXPECT_FALSE(Exit(1, SIGSEGV, 0, 1).ok()) << "news of a past incarnation";

  Take(kLauncher);
  ASSERT_TRUE(Exit(1, SIGSEGV, 0, 2).ok());
  EXPECT_TRUE(Take(kLauncher)[0].node_down().ends_job());
}

TEST_F(ClusterStateTest, WorkerThatEndsOnItsOwnDoesNotEndTheJob) {
  StartJob(2);
  ASSERT_TRUE(Exit(1, 0, 0).ok());
  control::Message goodbye;
  goodbye.mutable_goodbye();
  ASSERT_TRUE(Send(PeerOf(2), goodbye).ok());
  ASSERT_TRUE(Exit(2, 0, 1).ok());
  for (const auto& message : Take(kLauncher)) EXPECT_FALSE(message.node_down().ends_job());
  EXPECT_THAT(Take(kAgent), IsEmpty());
}

TEST_F(ClusterStateTest, DriversEndEndsTheJobWithItsStatus) {
  StartJob(1);
  ASSERT_TRUE(Exit(0, 0, 3).ok());
  const auto to_worker = Take(PeerOf(1));
  ASSERT_EQ(to_worker.size(), 1u);
  EXPECT_EQ(to_worker[0].shutdown().why().code(), 0);
  ASSERT_TRUE(Exit(1, SIGTERM, 0).ok());
  const auto end = Take(kLauncher);
  ASSERT_EQ(end.size(), 1u) << "that a worker is ended then is no news";
  EXPECT_EQ(end[0].job_ended().exit_code(), 3);
}

TEST_F(ClusterStateTest, KilledDriverIsToldToWorkers) {
  StartJob(1);
  ASSERT_TRUE(Exit(0, SIGSEGV, 0).ok());
  EXPECT_EQ(Take(PeerOf(1))[0].node_down().node().id(), 0);
  ASSERT_TRUE(Exit(1, 0, 1).ok());
  EXPECT_EQ(Take(kLauncher).back().job_ended().exit_code(), 128 + SIGSEGV);
}

TEST_F(ClusterStateTest, CancelReachesConnectedNodesAndThoseThatComeLater) {
  Join(kAgent);
  ASSERT_TRUE(Submit(2).ok());
  ASSERT_TRUE(Hello(0).ok());
  Take(kAgent);
  control::Message cancel;
  *cancel.mutable_cancel_job()->mutable_why() = ToControl(absl::CancelledError("interrupted"));
  EXPECT_FALSE(Send(PeerOf(0), cancel).ok()) << "only the launcher may";
  ASSERT_TRUE(Send(kLauncher, cancel).ok());
  EXPECT_EQ(Take(PeerOf(0)).back().shutdown().why().code(), static_cast<int>(absl::StatusCode::kCancelled));
  EXPECT_THAT(Take(kAgent), IsEmpty()) << "a connected driver needs no signal";
  ASSERT_TRUE(Hello(1).ok());
  EXPECT_TRUE(Take(PeerOf(1)).back().has_shutdown());
}

TEST_F(ClusterStateTest, CancelIsASignalForADriverThatIsNotConnected) {
  Join(kAgent);
  ASSERT_TRUE(Submit(1).ok());
  Take(kAgent);
  control::Message cancel;
  cancel.mutable_cancel_job();
  ASSERT_TRUE(Send(kLauncher, cancel).ok());
  const auto to_agent = Take(kAgent);
  ASSERT_EQ(to_agent.size(), 1u);
  EXPECT_EQ(to_agent[0].signal_process().signal(), SIGINT);
}

TEST_F(ClusterStateTest, NamesAreFoundAtOnceLaterOrNotAtAll) {
  StartJob(2);
  control::Message ask;
  ask.set_request(3);
  ask.mutable_look_up_name()->set_name("counter");
  ask.mutable_look_up_name()->set_timeout_us(1000000);
  ASSERT_TRUE(Send(PeerOf(1), ask).ok());
  EXPECT_THAT(Take(PeerOf(1)), IsEmpty()) << "not there yet";

  control::Message name;
  name.set_request(4);
  name.mutable_register_name()->set_name("counter");
  name.mutable_register_name()->set_node(2);
  name.mutable_register_name()->set_actor(42);
  ASSERT_TRUE(Send(PeerOf(2), name).ok());
  EXPECT_EQ(Take(PeerOf(1))[0].answer().actor(), 42u);
  name.mutable_register_name()->set_actor(43);
  Take(PeerOf(2));
  ASSERT_TRUE(Send(PeerOf(2), name).ok());
  EXPECT_EQ(Take(PeerOf(2))[0].answer().status().code(), static_cast<int>(absl::StatusCode::kAlreadyExists));

  ask.mutable_look_up_name()->set_name("nobody");
  ASSERT_TRUE(Send(PeerOf(1), ask).ok());
  EXPECT_EQ(state_.NextDeadline(), now_ + absl::Seconds(1));
  Advance(absl::Seconds(1));
  EXPECT_EQ(Take(PeerOf(1))[0].answer().status().code(), static_cast<int>(absl::StatusCode::kNotFound));
}

TEST_F(ClusterStateTest, NamesGoWithTheirNode) {
  StartJob(2);
  control::Message name;
  name.mutable_register_name()->set_name("counter");
  name.mutable_register_name()->set_node(2);
  ASSERT_TRUE(Send(PeerOf(2), name).ok());
  ASSERT_TRUE(Exit(2, 0, 0).ok());
  Take(PeerOf(1));
  control::Message remove;
  remove.set_request(5);
  remove.mutable_remove_name()->set_name("counter");
  ASSERT_TRUE(Send(PeerOf(1), remove).ok());
  EXPECT_EQ(Take(PeerOf(1))[0].answer().status().code(), static_cast<int>(absl::StatusCode::kNotFound));
}

TEST_F(ClusterStateTest, SilentHostIsDeadAfterItsLease) {
  Join(kAgent);
  Join("other", 2);
  ASSERT_TRUE(Submit(4).ok());
  for (int node = 0; node <= 4; ++node) ASSERT_TRUE(Hello(node).ok());
  for (auto& [peer, messages] : sent_) messages.clear();
  control::Message beat;
  beat.mutable_heartbeat()->set_sequence(1);
  Advance(absl::Seconds(2));
  ASSERT_TRUE(Send(kAgent, beat).ok());
  Advance(absl::Milliseconds(900));
  EXPECT_THAT(Take(PeerOf(0)), IsEmpty()) << "within the lease";
  Advance(absl::Milliseconds(101));
  const auto heard = Take(PeerOf(0));
  ASSERT_EQ(heard.size(), 2u);
  EXPECT_EQ(heard[0].node_down().node().rank(), 2);
  EXPECT_THAT(heard[0].node_down().why().message(), HasSubstr("host other-host has not been heard of for 3.001s"));
}

TEST_F(ClusterStateTest, SilenceWhileTheCoordinatorWasStoppedIsForgiven) {
  StartJob(1);
  now_ += absl::Minutes(1);
  state_.ForgiveSilence(now_);
  Advance(absl::Seconds(1));
  EXPECT_THAT(Take(PeerOf(0)), IsEmpty());
}

TEST_F(ClusterStateTest, LogDirectoryIsSetWhenEveryAgentHasDoneIt) {
  Join(kAgent);
  Join("other", 1);
  ASSERT_TRUE(Submit(3).ok());
  Take(kAgent), Take("other");
  control::Message message;
  message.set_request(8);
  message.mutable_set_log_directory()->set_directory("relative");
  EXPECT_FALSE(Send("anybody", message).ok());
  message.mutable_set_log_directory()->set_directory("/logs");
  ASSERT_TRUE(Send("anybody", message).ok());
  Take("anybody");
  const auto reply = [&](const std::string& agent, const absl::Status& status) {
    control::Message answer = Take(agent)[0];
    *answer.mutable_answer()->mutable_status() = ToControl(status);
    ASSERT_TRUE(Send(agent, answer).ok());
  };
  reply(kAgent, absl::OkStatus());
  EXPECT_THAT(Take("anybody"), IsEmpty());
  reply("other", absl::UnavailableError("disk full"));
  const auto answers = Take("anybody");
  ASSERT_EQ(answers.size(), 1u);
  EXPECT_EQ(answers[0].request(), 8u);
  EXPECT_EQ(answers[0].answer().status().message(), "disk full");
}

TEST_F(ClusterStateTest, DamagedMessagesAreRefusedOrHandledAndNeverEndTheCoordinator) {
  StartJob(2);
  // One message of every kind, with every field set to something.
  std::vector<std::string> samples;
  const auto* kinds = control::Message::descriptor()->FindOneofByName("body");
  for (int i = 0; i < kinds->field_count(); ++i) {
    control::Message message;
    message.set_job_epoch(kFirstEpoch);
    message.set_request(1);
    auto* body = message.GetReflection()->MutableMessage(&message, kinds->field(i));
    for (int f = 0; f < body->GetDescriptor()->field_count(); ++f) {
      const auto* field = body->GetDescriptor()->field(f);
      if (field->is_repeated()) continue;
      using Type = google::protobuf::FieldDescriptor;
      if (field->cpp_type() == Type::CPPTYPE_INT32) body->GetReflection()->SetInt32(body, field, 1);
      if (field->cpp_type() == Type::CPPTYPE_UINT32) body->GetReflection()->SetUInt32(body, field, 1);
      if (field->cpp_type() == Type::CPPTYPE_STRING) body->GetReflection()->SetString(body, field, "text");
    }
    samples.push_back(EncodeControl(message));
  }
  std::mt19937 random(1);
  const std::vector<std::string> peers = {kAgent, kLauncher, PeerOf(0), PeerOf(1), "nobody"};
  int handled = 0, refused = 0;
  for (int i = 0; i < 50000; ++i) {
    std::string bytes = samples[random() % samples.size()];
    for (size_t changes = random() % 3; changes > 0; --changes) bytes[random() % bytes.size()] = static_cast<char>(random());
    if (random() % 8 == 0) bytes.resize(random() % (bytes.size() + 1));
    const auto parsed = ParseControl(bytes);
    const bool ok = parsed.ok() && Send(peers[random() % peers.size()], *parsed).ok();
    ++(ok ? handled : refused);
    if (i % 1000 == 0) Advance(absl::Milliseconds(1));
  }
  EXPECT_GT(handled, 1000);
  EXPECT_GT(refused, 1000);
}

}  // namespace
}  // namespace troupe::runtime::internal
