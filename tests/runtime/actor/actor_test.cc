#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <numeric>
#include <stdexcept>
#include <string>
#include <vector>

#include "runtime/actor/handle.h"
#include "runtime/msg/error_chain.h"
#include "tests/runtime/actor/test_cluster.h"

namespace troupe::runtime {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr absl::Duration kGenerous = absl::Minutes(2);

struct Batch {
  std::vector<int> tokens;
  Buffer tensor;
  std::string tag;
  MSGPACK_DEFINE(tokens, tensor, tag)
};

/// What tests share with the actors of their own process.
struct Shared {
  std::vector<std::unique_ptr<Gate>> gates;
  std::atomic<int> runs{0};
  std::atomic<int> restores{0};
  std::atomic<bool> saw_cancel{false};
  std::unique_ptr<Gate> entered;
};
Shared* shared = nullptr;

class Counter {
 public:
  explicit Counter(int start) : value_(start) {}
  Counter(ActorContext& context, int start, const std::string& label)
      : context_(&context), value_(start), label_(label) {}

  int Add(int n) { return value_ += n; }
  void Remember(int n) { seen_.push_back(n); }
  std::vector<int> Seen() const { return seen_; }
  absl::Status Fail(const std::string& why) { return absl::NotFoundError(why); }
  absl::StatusOr<int> Checked(int n) {
    if (n < 0) return absl::InvalidArgumentError("negative");
    return n;
  }
  int Throw() { throw std::runtime_error("boom"); }
  std::string Who() const {
    return context_ == nullptr ? "" : absl::StrCat(context_->name(), "/", context_->rank(), label_);
  }
  int Blocked(int gate) {
    if (shared->entered != nullptr) shared->entered->Open();
    EXPECT_TRUE(shared->gates[static_cast<size_t>(gate)]->Wait().ok());
    if (context_ != nullptr) shared->saw_cancel = context_->cancelled();
    ++shared->runs;
    return gate;
  }
  Batch Echo(Batch batch) {
    batch.tag += "!";
    return batch;
  }
  std::vector<int> Large(int size) {
    std::vector<int> values(static_cast<size_t>(size));
    std::iota(values.begin(), values.end(), 0);
    return values;
  }
  int64_t SumOf(const std::vector<int>& values) const {
    return std::accumulate(values.begin(), values.end(), int64_t{0});
  }
  absl::StatusOr<int64_t> SumOfRef(const ObjectRef<std::vector<int>>& values) const {
    auto got = values.Get(kGenerous);
    if (!got.ok()) return got.status();
    return SumOf(*got);
  }
  bool Aligned(const Buffer& buffer) const { return reinterpret_cast<uintptr_t>(buffer.data()) % 64 == 0; }
  absl::StatusOr<int> AddThrough(const ActorHandle<Counter>& other, int n) {
    return other.Call<&Counter::Add>(n).Get(kGenerous);
  }
  absl::Status FailThrough(const ActorHandle<Counter>& other) {
    return other.Call<&Counter::Fail>(std::string("no such file")).Get(kGenerous);
  }
  absl::Status Restore() {
    if (shared != nullptr) ++shared->restores;
    return absl::OkStatus();
  }

 private:
  ActorContext* context_ = nullptr;
  int value_;
  std::string label_;
  std::vector<int> seen_;
};
TROUPE_IDEMPOTENT(Counter, &Counter::Seen, &Counter::Who);
TROUPE_ACTOR(Counter, &Counter::Add, &Counter::Remember, &Counter::Seen, &Counter::Fail, &Counter::Checked,
             &Counter::Throw, &Counter::Who, &Counter::Blocked, &Counter::Echo, &Counter::Large, &Counter::SumOf,
             &Counter::SumOfRef, &Counter::Aligned, &Counter::AddThrough, &Counter::FailThrough);

/// Made by a factory that may fail.
class Picky {
 public:
  static absl::StatusOr<std::unique_ptr<Picky>> Create(const std::string& path) {
    if (path.empty()) return absl::NotFoundError("no model at \"\"");
    return std::make_unique<Picky>();
  }
  int Ping() { return 1; }
};
TROUPE_ACTOR(Picky, &Picky::Ping);

class ActorTest : public ::testing::TestWithParam<Lane> {
 protected:
  void SetUp() override {
    cluster_ = std::make_unique<TestCluster>(GetParam(), 3);
    shared_ = std::make_unique<Shared>();
    for (int i = 0; i < 3; ++i) shared_->gates.push_back(std::make_unique<Gate>(cluster_->scheduler()));
    shared_->entered = std::make_unique<Gate>(cluster_->scheduler());
    shared = shared_.get();
  }
  void TearDown() override {
    for (auto& gate : shared_->gates) gate->Open();
    cluster_.reset();
    shared = nullptr;
  }
  template <typename... Args>
  ActorHandle<Counter> SpawnCounter(int rank, const Args&... args) {
    auto handle =
        SpawnOn<Counter>(cluster_->driver(), {.name = absl::StrCat("counter", ++names_), .rank = rank}, args...);
    EXPECT_TRUE(handle.ok()) << handle.status();
    return *handle;
  }

  std::unique_ptr<TestCluster> cluster_;
  std::unique_ptr<Shared> shared_;
  int names_ = 0;
};
INSTANTIATE_TEST_SUITE_P(Lanes, ActorTest, ::testing::Values(Lane::kThreads, Lane::kFibers, Lane::kZmq), LaneName);

TEST_P(ActorTest, ACallReturnsItsResult) {
  const auto counter = SpawnCounter(0, 40);
  EXPECT_EQ(*counter.Call<&Counter::Add>(2).Get(kGenerous), 42);
  EXPECT_EQ(*counter.Call<&Counter::Checked>(5).Get(kGenerous), 5);
  EXPECT_TRUE(counter.Call<&Counter::Remember>(5).Get(kGenerous).ok());
}

TEST_P(ActorTest, AnActorLivesOnTheDriverToo) {
  const auto counter = SpawnCounter(-1, 1);
  EXPECT_EQ(*counter.Call<&Counter::Add>(2).Get(kGenerous), 3);
}

TEST_P(ActorTest, TheConstructorMayTakeTheContext) {
  const auto counter = SpawnCounter(1, 1, "!");
  EXPECT_EQ(*counter.Call<&Counter::Who>().Get(kGenerous), "counter1/1!");
}

TEST_P(ActorTest, AFactoryThatFailsIsTheErrorOfSpawn) {
  const auto picky = SpawnOn<Picky>(cluster_->driver(), {.name = "picky", .rank = 2}, "");
  EXPECT_EQ(picky.status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(picky.status().message(), "picky (rank 2, host host3): constructor: no model at \"\"");
  const auto good = SpawnOn<Picky>(cluster_->driver(), {.name = "picky", .rank = 2}, "here");
  ASSERT_TRUE(good.ok()) << good.status();
  EXPECT_EQ(*good->Call<&Picky::Ping>().Get(kGenerous), 1);
}

TEST_P(ActorTest, I1CallsRunInOrder) {
  const auto counter = SpawnCounter(0, 0);
  std::vector<int> expected;
  std::vector<ObjectRef<void>> calls;
  for (int i = 0; i < 500; ++i) {
    const auto copy = counter;  // the session is the handle's, not the copy's
    calls.push_back(copy.Call<&Counter::Remember>(i));
    expected.push_back(i);
  }
  EXPECT_TRUE(WhenAll(calls, kGenerous).ok());
  EXPECT_EQ(*counter.Call<&Counter::Seen>().Get(kGenerous), expected);
}

TEST_P(ActorTest, TensorsTravelAlignedAndUnchanged) {
  const auto counter = SpawnCounter(0, 0);
  for (const size_t size : {size_t{0}, size_t{1}, size_t{63}, size_t{5000}, size_t{1} << 20}) {
    std::vector<char> bytes(size);
    for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<char>(i * 7);
    Batch batch{{1, 2, 3}, Buffer::Copy(bytes.data(), size), "tag"};
    const auto echo = counter.Call<&Counter::Echo>(batch).Get(kGenerous);
    ASSERT_TRUE(echo.ok()) << echo.status();
    EXPECT_THAT(echo->tokens, ElementsAre(1, 2, 3));
    EXPECT_EQ(echo->tag, "tag!");
    ASSERT_EQ(echo->tensor.size(), size);
    EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), reinterpret_cast<const char*>(echo->tensor.data())));
    const Buffer crooked = Buffer::Wrap(nullptr, bytes.data() + (size > 0 ? 1 : 0), size > 0 ? size - 1 : 0);
    EXPECT_TRUE(*counter.Call<&Counter::Aligned>(crooked).Get(kGenerous));
  }
}

TEST_P(ActorTest, AnErrorNamesActorRankAndHost) {
  const auto counter = SpawnCounter(1, 0);
  const absl::Status status = counter.Call<&Counter::Fail>(std::string("no such file")).Get(kGenerous);
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(status.message(), "counter1 (rank 1, host host2): Fail: no such file");
  EXPECT_EQ(counter.Call<&Counter::Checked>(-1).Get(kGenerous).status().code(), absl::StatusCode::kInvalidArgument);
  const auto thrown = counter.Call<&Counter::Throw>().Get(kGenerous).status();
  EXPECT_EQ(thrown.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(thrown.message()), HasSubstr("threw boom"));
}

TEST_P(ActorTest, AnErrorKeepsTheChainOfItsCauses) {
  const auto inner = SpawnCounter(1, 0);
  const auto outer = SpawnCounter(2, 0);
  const absl::Status status = outer.Call<&Counter::FailThrough>(inner).Get(kGenerous);
  EXPECT_EQ(status.message(),
            "counter2 (rank 2, host host3): FailThrough: counter1 (rank 1, host host2): Fail: no such file");
  const auto chain = ErrorChain(status);
  ASSERT_THAT(chain, SizeIs(2));
  EXPECT_EQ(chain[0].actor, "counter1");
  EXPECT_EQ(chain[0].rank, 1);
  EXPECT_EQ(chain[0].host, "host2");
  EXPECT_EQ(chain[0].method, "Fail");
  EXPECT_EQ(chain[0].message, "no such file");
  EXPECT_EQ(chain[1].actor, "counter2");
}

TEST_P(ActorTest, AHandleMayBePassedOn) {
  const auto inner = SpawnCounter(1, 10);
  const auto outer = SpawnCounter(2, 0);
  EXPECT_EQ(*outer.Call<&Counter::AddThrough>(inner, 5).Get(kGenerous), 15);
  EXPECT_EQ(*inner.Call<&Counter::Add>(1).Get(kGenerous), 16);
}

TEST_P(ActorTest, ALargeResultStaysWhereItWasMadeUntilItIsFetched) {
  const auto counter = SpawnCounter(0, 0);
  {
    const auto large = counter.Call<&Counter::Large>(100000);
    EXPECT_THAT(*Wait(std::vector{large}, 1, kGenerous), ElementsAre(0));
    EXPECT_EQ(cluster_->node(1)->Report().objects, 1);
    EXPECT_THAT(*large.Get(kGenerous), SizeIs(100000));
    EXPECT_THAT(*large.Get(kGenerous), SizeIs(100000));
  }
  // The release came before this call, on the same way.
  EXPECT_EQ(*counter.Call<&Counter::Add>(1).Get(kGenerous), 1);
  EXPECT_EQ(cluster_->node(1)->Report().objects, 0);
}

TEST_P(ActorTest, AReferenceStandsForItsValueAtAnotherActor) {
  const auto maker = SpawnCounter(0, 0);
  const auto user = SpawnCounter(1, 0);
  for (const int size : {10, 100000}) {
    const int64_t expected = int64_t{size} * (size - 1) / 2;
    const auto values = maker.Call<&Counter::Large>(size);
    EXPECT_EQ(*user.Call<&Counter::SumOf>(values).Get(kGenerous), expected);
    EXPECT_EQ(*user.Call<&Counter::SumOfRef>(values).Get(kGenerous), expected);
    // Also when nobody holds it any more, and when it is not there yet.
    EXPECT_EQ(*user.Call<&Counter::SumOf>(maker.Call<&Counter::Large>(size)).Get(kGenerous), expected);
  }
  EXPECT_EQ(cluster_->driver()->Report().object_bytes, 0);
}

TEST_P(ActorTest, AFailedReferenceFailsTheCallThatNeedsIt) {
  const auto maker = SpawnCounter(0, 0);
  const auto user = SpawnCounter(1, 0);
  const auto bad = maker.Call<&Counter::Checked>(-1);
  const auto status = user.Call<&Counter::Add>(bad).Get(kGenerous).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("counter2 (rank 1, host host2): Add: counter1"));
}

TEST_P(ActorTest, WaitReturnsAsSoonAsEnoughHaveEnded) {
  const auto slow = SpawnCounter(0, 0);
  const auto fast = SpawnCounter(1, 0);
  const std::vector<ObjectRef<int>> calls{slow.Call<&Counter::Blocked>(0), fast.Call<&Counter::Add>(1)};
  EXPECT_THAT(*Wait(calls, 1, kGenerous), ElementsAre(1));
  shared_->gates[0]->Open();
  EXPECT_THAT(*Wait(calls, 2, kGenerous), ElementsAre(0, 1));
  EXPECT_FALSE(Wait(calls, 3, kGenerous).ok());
  EXPECT_THAT(*WhenAll(calls, kGenerous), ElementsAre(0, 1));
}

TEST_P(ActorTest, WhenAllFailsAtOnceWhenOneFails) {
  const auto slow = SpawnCounter(0, 0);
  const auto bad = SpawnCounter(1, 0);
  const auto all = WhenAll(std::vector{slow.Call<&Counter::Blocked>(0), bad.Call<&Counter::Checked>(-1)}, kGenerous);
  EXPECT_EQ(all.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(shared_->runs, 0);
}

TEST_P(ActorTest, ACancelledCallDoesNotRunAndARunningOneSeesIt) {
  const auto counter = SpawnCounter(0, 0, "");
  const auto running = counter.Call<&Counter::Blocked>(0);
  const auto queued = counter.Call<&Counter::Blocked>(1);
  ASSERT_TRUE(shared_->entered->Wait().ok());
  queued.Cancel();
  running.Cancel();
  EXPECT_EQ(queued.Get(kGenerous).status().code(), absl::StatusCode::kCancelled);
  // Cancel was answered while the method was running; an answer from the same node proves that it has arrived.
  EXPECT_TRUE(cluster_->driver()->ReportOf(1, kGenerous).ok());
  shared_->gates[0]->Open();
  EXPECT_TRUE(running.Get(kGenerous).ok());
  EXPECT_TRUE(shared_->saw_cancel);
  EXPECT_EQ(shared_->runs, 1);
}

TEST_P(ActorTest, I3AWaitEndsAtItsDeadline) {
  const auto counter = SpawnCounter(0, 0);
  const auto call = counter.Call<&Counter::Blocked>(CallOptions{.timeout = absl::Milliseconds(1)}, 0);
  EXPECT_EQ(call.Get(kGenerous).status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(WhenAll(std::vector{call}, kGenerous).status().code(), absl::StatusCode::kDeadlineExceeded);
  shared_->gates[0]->Open();
}

TEST_P(ActorTest, AGetThatTimesOutMayBeAskedAgain) {
  const auto counter = SpawnCounter(0, 0);
  const auto call = counter.Call<&Counter::Blocked>(0);
  EXPECT_EQ(call.Get(absl::ZeroDuration()).status().code(), absl::StatusCode::kDeadlineExceeded);
  shared_->gates[0]->Open();
  EXPECT_EQ(*call.Get(kGenerous), 0);
}

TEST_P(ActorTest, I3AWaitEndsWhenItsPeerDies) {
  const auto counter = SpawnCounter(1, 0);
  const auto call = counter.Call<&Counter::Blocked>(0);
  ASSERT_TRUE(shared_->entered->Wait().ok());
  cluster_->Kill(2);
  const auto status = call.Get(kGenerous).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(status.message(), "counter1 (rank 1, host host2): Blocked: outcome unknown: rank 1 was killed by signal 9");
  EXPECT_TRUE(IsOutcomeUnknown(status));
  const auto after = counter.Call<&Counter::Add>(1).Get(kGenerous).status();
  EXPECT_EQ(after.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(after.message()), HasSubstr("did not run: rank 1 was killed by signal 9"));
  shared_->gates[0]->Open();
}

TEST_P(ActorTest, AnActorIsMadeAgainWhenItsNodeComesBack) {
  const auto spawned = SpawnOn<Counter>(cluster_->driver(), {.name = "phoenix", .rank = 1, .max_restarts = 1}, 100);
  ASSERT_TRUE(spawned.ok()) << spawned.status();
  EXPECT_EQ(*spawned->Call<&Counter::Add>(1).Get(kGenerous), 101);
  // Another node holds a handle, too.
  const auto other = SpawnCounter(0, 0);
  EXPECT_EQ(*other.Call<&Counter::AddThrough>(*spawned, 1).Get(kGenerous), 102);
  const auto lost = spawned->Call<&Counter::Blocked>(0);
  const auto idempotent = spawned->Call<&Counter::Seen>();
  ASSERT_TRUE(shared_->entered->Wait().ok());
  cluster_->Kill(2);
  EXPECT_TRUE(IsOutcomeUnknown(lost.Get(kGenerous).status()));
  const auto while_down = spawned->Call<&Counter::Add>(5);
  const auto from_other = other.Call<&Counter::AddThrough>(*spawned, 10);
  EXPECT_FALSE(while_down.Ready());
  cluster_->Restart(2);
  EXPECT_TRUE(while_down.Get(kGenerous).ok());
  EXPECT_TRUE(from_other.Get(kGenerous).ok());
  EXPECT_EQ(*spawned->Call<&Counter::Add>(0).Get(kGenerous), 115)
      << "the state of before is gone, the constructor ran again";
  EXPECT_THAT(*idempotent.Get(kGenerous), IsEmpty()) << "an idempotent method is called again";
  EXPECT_EQ(shared_->restores, 1);
  // The name stays; the second death is one too many.
  EXPECT_TRUE(LookUpActor<Counter>(cluster_->driver(), "phoenix", kGenerous).ok());
  shared_->gates[0]->Open();
}

TEST_P(ActorTest, ANamedActorIsFoundFromEveryNode) {
  const auto counter = SpawnCounter(1, 7);
  const auto found = LookUpActor<Counter>(cluster_->node(3), "counter1", kGenerous);
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(*found->Call<&Counter::Add>(0).Get(kGenerous), 7);
  EXPECT_EQ(LookUpActor<Picky>(cluster_->node(3), "counter1", kGenerous).status().code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(LookUpActor<Counter>(cluster_->node(3), "nobody", absl::ZeroDuration()).status().code(),
            absl::StatusCode::kNotFound);
  const auto second = SpawnOn<Counter>(cluster_->driver(), {.name = "counter1", .rank = 0}, 1);
  EXPECT_EQ(second.status().code(), absl::StatusCode::kAlreadyExists);
}

TEST_P(ActorTest, ADestroyedActorAnswersWhatWaitsWithCancelled) {
  const auto counter = SpawnCounter(0, 0);
  const auto running = counter.Call<&Counter::Blocked>(0);
  const auto queued = counter.Call<&Counter::Add>(1);
  ASSERT_TRUE(shared_->entered->Wait().ok());
  const auto end = counter.DestroyAsync(kGenerous);
  EXPECT_TRUE(cluster_->driver()->ReportOf(1, kGenerous).ok());
  shared_->gates[0]->Open();
  EXPECT_TRUE(end.Get(kGenerous).ok());
  EXPECT_EQ(*running.Get(kGenerous), 0);
  EXPECT_EQ(queued.Get(kGenerous).status().code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(counter.Call<&Counter::Add>(1).Get(kGenerous).status().code(), absl::StatusCode::kNotFound);
}

TEST_P(ActorTest, IntrospectionAnswersWhileAMethodRuns) {
  const auto counter = SpawnCounter(0, 0);
  const auto running = counter.Call<&Counter::Blocked>(0);
  const auto queued = counter.Call<&Counter::Add>(1);
  ASSERT_TRUE(shared_->entered->Wait().ok());
  const auto report = cluster_->driver()->ReportOf(1, kGenerous);
  ASSERT_TRUE(report.ok()) << report.status();
  ASSERT_THAT(report->actors, SizeIs(1));
  EXPECT_EQ(report->actors[0].name, "counter1");
  EXPECT_EQ(report->actors[0].method, "Blocked");
  EXPECT_EQ(report->actors[0].queued, 1);
  shared_->gates[0]->Open();
  EXPECT_EQ(*queued.Get(kGenerous), 1);
}

TEST(RegistryTest, TheHashKnowsEveryMethodAndItsTypes) {
  const ClassEntry* entry = ClassRegistry::Global().Find(TypeName<Counter>());
  ASSERT_NE(entry, nullptr);
  EXPECT_EQ(entry->methods[0].name, "Add");
  EXPECT_THAT(entry->methods[0].signature, HasSubstr("(int)"));
  EXPECT_TRUE(entry->methods[2].idempotent);
  EXPECT_FALSE(entry->methods[0].idempotent);
  ClassRegistry one;
  ClassRegistry two;
  one.AddClass({"A", {{"F", "int(int)", false, nullptr}}, {}, nullptr});
  two.AddClass({"A", {{"F", "int(long)", false, nullptr}}, {}, nullptr});
  EXPECT_NE(one.SignatureHash(), two.SignatureHash());
  EXPECT_EQ(RegisteredSignatureHash(), ClassRegistry::Global().SignatureHash());
}

}  // namespace
}  // namespace troupe::runtime
