#include "runtime/node/node.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "runtime/actor/handle.h"
#include "runtime/msg/error_chain.h"
#include "tests/runtime/actor/test_cluster.h"

namespace troupe::runtime {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr absl::Duration kGenerous = absl::Minutes(2);

class Log {
 public:
  Log() = default;
  void Write(int n) { lines_.push_back(n); }
  std::vector<int> Read() { return lines_; }

 private:
  std::vector<int> lines_;
};
TROUPE_ACTOR(Log, &Log::Write, &Log::Read);

/// Loses, repeats and keeps the messages that the test says.
class FaultyTransport final : public Transport {
 public:
  enum class Fault { kNone, kLose, kTwice };
  struct Plan {
    std::deque<Fault> calls;  ///< of the next calls
    std::vector<Message> sent;
  };
  FaultyTransport(std::unique_ptr<Transport> inner, Plan* plan) : inner_(std::move(inner)), plan_(plan) {}
  void Start(Handler handler) override { inner_->Start(std::move(handler)); }
  absl::Status Send(const NodeAddress& peer, Message message) override {
    if (message.envelope.kind != MessageKind::kCall) return inner_->Send(peer, std::move(message));
    plan_->sent.push_back(message);
    Fault fault = Fault::kNone;
    if (!plan_->calls.empty()) {
      fault = plan_->calls.front();
      plan_->calls.pop_front();
    }
    if (fault == Fault::kLose) return absl::OkStatus();
    if (fault == Fault::kTwice) (void)inner_->Send(peer, message);
    return inner_->Send(peer, std::move(message));
  }
  void Disconnect(const NodeAddress& peer) override { inner_->Disconnect(peer); }
  std::string endpoint() const override { return inner_->endpoint(); }
  void Close() override { inner_->Close(); }

 private:
  const std::unique_ptr<Transport> inner_;
  Plan* const plan_;
};

/// A driver with a faulty transport, and one worker; the test is the scheduler.
class FaultTest : public ::testing::Test {
 protected:
  FaultTest() {
    driver_ = StartNode(0, 1, &plan_);
    worker_ = StartNode(1, 1, nullptr);
    auto log = SpawnOn<Log>(driver_, {.name = "log", .rank = 0, .max_restarts = 3});
    TROUPE_CHECK(log.ok()) << log.status();
    log_ = *log;
  }
  ~FaultTest() override {
    EXPECT_TRUE(driver_->Close(kGenerous).ok());
    EXPECT_TRUE(worker_->Close(kGenerous).ok());
    for (auto& node : dead_) EXPECT_TRUE(node->Close(kGenerous).ok());
  }
  std::shared_ptr<Node> StartNode(int id, uint32_t incarnation, FaultyTransport::Plan* plan, uint64_t epoch = 0) {
    NodeAddress address;
    address.id = id;
    address.incarnation = incarnation;
    address.rank = id - 1;
    address.host = "h";
    std::unique_ptr<Transport> transport = std::make_unique<InProcessTransport>(hub_, id);
    if (plan != nullptr) transport = std::make_unique<FaultyTransport>(std::move(transport), plan);
    NodeOptions options;
    options.job_epoch = epoch;
    return Node::Start(std::make_shared<LocalDirectory>(registry_, address), scheduler_, std::move(transport), options);
  }

  std::shared_ptr<Scheduler> scheduler_ = std::make_shared<FiberScheduler>();
  std::shared_ptr<LocalRegistry> registry_ = std::make_shared<LocalRegistry>(scheduler_);
  std::shared_ptr<InProcessHub> hub_ = std::make_shared<InProcessHub>();
  FaultyTransport::Plan plan_;
  std::shared_ptr<Node> driver_;
  std::shared_ptr<Node> worker_;
  std::vector<std::shared_ptr<Node>> dead_;
  ActorHandle<Log> log_;
};

TEST_F(FaultTest, I2ARepeatedMessageRunsOnce) {
  using Fault = FaultyTransport::Fault;
  plan_.calls = {Fault::kTwice, Fault::kTwice, Fault::kNone};
  EXPECT_TRUE(log_.Call<&Log::Write>(1).Get(kGenerous).ok());
  EXPECT_TRUE(log_.Call<&Log::Write>(2).Get(kGenerous).ok());
  EXPECT_THAT(*log_.Call<&Log::Read>().Get(kGenerous), ElementsAre(1, 2));
  EXPECT_EQ(worker_->Report().actors[0].duplicates_dropped, 2);
}

TEST_F(FaultTest, I2ALateRepeatDoesNotRunEither) {
  EXPECT_TRUE(log_.Call<&Log::Write>(1).Get(kGenerous).ok());
  EXPECT_TRUE(log_.Call<&Log::Write>(2).Get(kGenerous).ok());
  Message again = plan_.sent[0];
  EXPECT_TRUE(driver_->Post(std::move(again), false).ok());
  EXPECT_THAT(*log_.Call<&Log::Read>().Get(kGenerous), ElementsAre(1, 2));
}

TEST_F(FaultTest, I2ALostCallIsAnErrorAndTheNextOneRuns) {
  using Fault = FaultyTransport::Fault;
  EXPECT_TRUE(log_.Call<&Log::Write>(0).Get(kGenerous).ok());
  plan_.calls = {Fault::kLose, Fault::kLose, Fault::kNone};
  const auto lost = log_.Call<&Log::Write>(1);
  const auto lost_too = log_.Call<&Log::Write>(2);
  const auto runs = log_.Call<&Log::Write>(3);
  EXPECT_TRUE(runs.Get(kGenerous).ok());
  const absl::Status status = lost.Get(kGenerous);
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(status.message(), "log (rank 0, host h): Write: outcome unknown: the message was lost on its way");
  EXPECT_TRUE(IsOutcomeUnknown(lost_too.Get(kGenerous)));
  EXPECT_THAT(*log_.Call<&Log::Read>().Get(kGenerous), ElementsAre(0, 3));
}

TEST_F(FaultTest, I4AMessageForAPastIncarnationIsRefused) {
  EXPECT_TRUE(log_.Call<&Log::Write>(1).Get(kGenerous).ok());
  registry_->KillNode(1, absl::UnavailableError("killed"));
  dead_.push_back(worker_);
  worker_ = StartNode(1, 2, nullptr);
  EXPECT_THAT(*log_.Call<&Log::Read>().Get(kGenerous), ElementsAre());
  // The hub delivers by node, as a socket that was bound again would: only the receiver can know.
  InProcessTransport direct(hub_, 7);
  Message stale = plan_.sent[0];
  NodeAddress to;
  to.id = 1;
  stale.envelope.sequence = 100;
  EXPECT_EQ(stale.envelope.receiver_incarnation, 1);
  EXPECT_TRUE(direct.Send(to, stale).ok());
  EXPECT_THAT(*log_.Call<&Log::Read>().Get(kGenerous), ElementsAre());
  EXPECT_EQ(worker_->Report().actors[0].queued, 0);
}

TEST_F(FaultTest, I4AMessageOfAPastIncarnationIsRefused) {
  EXPECT_TRUE(log_.Call<&Log::Write>(1).Get(kGenerous).ok());
  Message of_the_dead = plan_.sent[0];
  registry_->KillNode(0, absl::UnavailableError("killed"));
  dead_.push_back(driver_);
  driver_ = StartNode(0, 2, &plan_);
  InProcessTransport direct(hub_, 7);
  NodeAddress to;
  to.id = 1;
  of_the_dead.envelope.sequence = 100;
  EXPECT_TRUE(direct.Send(to, of_the_dead).ok());
  EXPECT_EQ(worker_->Report().actors[0].queued, 0);
  EXPECT_EQ(worker_->Report().actors[0].calls_done, 1);
}

TEST_F(FaultTest, AMessageOfAnotherJobIsRefused) {
  EXPECT_TRUE(log_.Call<&Log::Write>(1).Get(kGenerous).ok());
  InProcessTransport direct(hub_, 7);
  Message other = plan_.sent[0];
  NodeAddress to;
  to.id = 1;
  other.envelope.job_epoch = 12345;
  other.envelope.sequence = 100;
  EXPECT_TRUE(direct.Send(to, other).ok());
  EXPECT_EQ(worker_->Report().actors[0].queued, 0);
}

TEST_F(FaultTest, BrokenMessagesAreAnsweredNotRun) {
  InProcessTransport direct(hub_, 7);
  NodeAddress to;
  to.id = 1;
  EXPECT_TRUE(log_.Call<&Log::Write>(1).Get(kGenerous).ok());
  for (uint8_t kind = 1; kind <= kLastMessageKind; ++kind) {
    if (static_cast<MessageKind>(kind) == MessageKind::kDestroy) continue;
    Message broken = plan_.sent[0];
    broken.envelope.kind = static_cast<MessageKind>(kind);
    broken.envelope.sequence = 100 + kind;
    broken.envelope.flags = 0xff;
    broken.body = "\xc1 no msgpack";
    EXPECT_TRUE(direct.Send(to, broken).ok());
  }
  EXPECT_THAT(*log_.Call<&Log::Read>().Get(kGenerous), ElementsAre(1));
}

class ChannelTest : public ::testing::TestWithParam<Lane> {
 protected:
  ChannelTest() : cluster_(GetParam(), 3) {
    description_.number = 77;
    description_.name = "trainer";
    for (int rank = 0; rank < 3; ++rank)
      description_.members.push_back({rank, rank + 1, absl::StrCat("host", rank + 1)});
  }
  std::unique_ptr<NodeChannel> Open(int rank) {
    return std::make_unique<NodeChannel>(cluster_.node(rank + 1).get(), description_, rank);
  }
  static Buffer Text(const std::string& text) { return Buffer::Copy(text.data(), text.size()); }
  static std::string Text(const absl::StatusOr<Buffer>& buffer) {
    if (!buffer.ok()) return buffer.status().ToString();
    return std::string(reinterpret_cast<const char*>(buffer->data()), buffer->size());
  }
  static absl::Time Deadline() { return absl::Now() + kGenerous; }

  TestCluster cluster_;
  ChannelDescription description_;
};
INSTANTIATE_TEST_SUITE_P(Lanes, ChannelTest, ::testing::Values(Lane::kThreads, Lane::kFibers, Lane::kZmq), LaneName);

TEST_P(ChannelTest, MessagesKeepTheirOrderWithinSenderAndTag) {
  const auto a = Open(0);
  ASSERT_TRUE(a->Send(1, 5, Text("early")).ok()) << "before rank 1 is there";
  const auto b = Open(1);
  const auto c = Open(2);
  ASSERT_TRUE(a->Send(1, 6, Text("other tag")).ok());
  ASSERT_TRUE(a->Send(1, 5, Text("second")).ok());
  ASSERT_TRUE(c->Send(1, 5, Text("of rank 2")).ok());
  ASSERT_TRUE(b->Send(1, 5, Text("to myself")).ok());
  EXPECT_EQ(Text(b->Receive(2, 5, Deadline())), "of rank 2");
  EXPECT_EQ(Text(b->Receive(0, 5, Deadline())), "early");
  EXPECT_EQ(Text(b->Receive(0, 5, Deadline())), "second");
  EXPECT_EQ(Text(b->Receive(0, 6, Deadline())), "other tag");
  EXPECT_EQ(Text(b->Receive(1, 5, Deadline())), "to myself");
  EXPECT_EQ(b->Receive(1, 5, absl::Now()).status().code(), absl::StatusCode::kDeadlineExceeded);
}

TEST_P(ChannelTest, ADeadMemberRevokesEveryoneNamingTheRank) {
  const auto a = Open(0);
  const auto b = Open(1);
  absl::Status seen;
  auto task = cluster_.scheduler().Start("rank 1", [&] { seen = b->Receive(2, 1, Deadline()).status(); });
  cluster_.Kill(3);
  EXPECT_TRUE(task->Join(Deadline()));
  EXPECT_EQ(seen.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(seen.message(), "trainer: rank 2 (host host3) is gone: rank 2 was killed by signal 9");
  EXPECT_EQ(a->Send(1, 1, Text("x")), seen);
  // One that opens later learns it, too.
  const auto again = Open(0);
  EXPECT_FALSE(again->Receive(1, 1, Deadline()).ok());
}

TEST_P(ChannelTest, ARevokeReachesEveryMember) {
  const auto a = Open(0);
  const auto b = Open(1);
  const auto c = Open(2);
  b->Revoke(absl::AbortedError("all_reduce #3: out of step"));
  b->Revoke(absl::AbortedError("not the first reason"));
  for (const auto* channel : {&a, &b, &c}) {
    EXPECT_EQ((*channel)->Receive(1, 1, Deadline()).status().message(), "all_reduce #3: out of step");
  }
}

TEST_P(ChannelTest, AfterAResetMembersTalkAgainAndOldMessagesAreGone) {
  const auto a = Open(0);
  const auto b = Open(1);
  ASSERT_TRUE(a->Send(1, 1, Text("old")).ok());
  a->Revoke(absl::AbortedError("broken"));
  EXPECT_FALSE(b->Receive(0, 2, Deadline()).ok());
  cluster_.driver()->ResetChannel(description_, 1);
  // An answer behind the reset proves that it has arrived.
  for (const int node : {1, 2}) EXPECT_TRUE(cluster_.driver()->ReportOf(node, kGenerous).ok());
  EXPECT_EQ(a->Send(1, 1, Text("of the time before")).code(), absl::StatusCode::kAborted);
  a->Rejoin();
  b->Rejoin();
  a->Revoke(absl::AbortedError("broken again"));
  EXPECT_EQ(b->Receive(0, 1, Deadline()).status().message(), "broken again");
  cluster_.driver()->ResetChannel(description_, 2);
  for (const int node : {1, 2}) EXPECT_TRUE(cluster_.driver()->ReportOf(node, kGenerous).ok());
  a->Rejoin();
  b->Rejoin();
  ASSERT_TRUE(a->Send(1, 1, Text("new")).ok());
  EXPECT_EQ(Text(b->Receive(0, 1, Deadline())), "new");
}

}  // namespace
}  // namespace troupe::runtime
