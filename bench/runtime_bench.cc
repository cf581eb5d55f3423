/// What the runtime costs: actor calls and collectives, between nodes of one process through memory and through ZeroMQ.
///
///   build/bench/runtime_bench [--benchmark_filter=AllReduce]
#include <benchmark/benchmark.h>
#include <unistd.h>

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/actor/handle.h"
#include "runtime/base/check.h"
#include "runtime/collective/collective.h"
#include "runtime/node/local_directory.h"
#include "runtime/node/node.h"
#include "runtime/sched/thread_scheduler.h"
#include "runtime/transport/in_process_transport.h"
#include "runtime/transport/zmq_transport.h"

namespace troupe::runtime {
namespace {

constexpr absl::Duration kTimeout = absl::Minutes(5);

class Echo {
 public:
  int Add(int n) { return sum_ += n; }
  Buffer Return(const Buffer& buffer) { return buffer; }

 private:
  int sum_ = 0;
};
TROUPE_ACTOR(Echo, &Echo::Add, &Echo::Return);

enum Lane : int64_t { kMemory = 0, kZmq = 1 };
const char* LaneName(int64_t lane) { return lane == kZmq ? "zmq" : "memory"; }

/// A driver and some workers, all in this process.
class Cluster {
 public:
  Cluster(int64_t lane, int workers) {
    for (int id = 0; id <= workers; ++id) {
      NodeAddress address;
      address.id = id;
      address.incarnation = 1;
      address.rank = id - 1;
      address.host = "here";
      std::unique_ptr<Transport> transport;
      if (lane == kZmq) {
        static int unique = 0;
        ZmqTransportOptions options;
        options.endpoint = absl::StrCat("ipc://@troupe-bench-", getpid(), "-", ++unique);
        options.node = id;
        options.incarnation = 1;
        auto made = ZmqTransport::Create(options);
        TROUPE_CHECK(made.ok()) << made.status();
        address.endpoint = (*made)->endpoint();
        transport = *std::move(made);
      } else {
        transport = std::make_unique<InProcessTransport>(hub_, id);
      }
      auto directory = std::make_shared<LocalDirectory>(registry_, address);
      nodes_.push_back(Node::Start(std::move(directory), scheduler_, std::move(transport), NodeOptions{}));
    }
  }
  ~Cluster() {
    for (const auto& node : nodes_) TROUPE_CHECK(node->Close(kTimeout).ok());
  }

  const std::shared_ptr<Node>& node(int id) { return nodes_[static_cast<size_t>(id)]; }
  Scheduler& scheduler() { return *scheduler_; }
  ActorHandle<Echo> SpawnEcho() {
    auto handle = SpawnOn<Echo>(nodes_[0], {.name = "echo", .rank = 0});
    TROUPE_CHECK(handle.ok()) << handle.status();
    return *handle;
  }

 private:
  std::shared_ptr<Scheduler> scheduler_ = std::make_shared<ThreadScheduler>();
  std::shared_ptr<LocalRegistry> registry_ = std::make_shared<LocalRegistry>(scheduler_);
  std::shared_ptr<InProcessHub> hub_ = std::make_shared<InProcessHub>();
  std::vector<std::shared_ptr<Node>> nodes_;
};

void CallRoundTrip(benchmark::State& state) {
  Cluster cluster(state.range(0), 1);
  const ActorHandle<Echo> echo = cluster.SpawnEcho();
  for (auto _ : state) {
    const auto sum = echo.Call<&Echo::Add>(1).Get(kTimeout);
    TROUPE_CHECK(sum.ok()) << sum.status();
  }
  state.SetLabel(LaneName(state.range(0)));
}
BENCHMARK(CallRoundTrip)->Arg(kMemory)->Arg(kZmq)->UseRealTime()->Unit(benchmark::kMicrosecond);

/// Calls that are made without waiting; one wait at the end of each batch.
void CallOneWay(benchmark::State& state) {
  constexpr int kCalls = 20000;
  Cluster cluster(state.range(0), 1);
  const ActorHandle<Echo> echo = cluster.SpawnEcho();
  for (auto _ : state) {
    for (int i = 1; i < kCalls; ++i) echo.Call<&Echo::Add>(1);
    const auto sum = echo.Call<&Echo::Add>(1).Get(kTimeout);
    TROUPE_CHECK(sum.ok()) << sum.status();
  }
  state.SetItemsProcessed(state.iterations() * kCalls);
  state.SetLabel(LaneName(state.range(0)));
}
BENCHMARK(CallOneWay)->Arg(kMemory)->Arg(kZmq)->UseRealTime()->Unit(benchmark::kMillisecond);

/// A tensor to an actor and back.
void TensorRoundTrip(benchmark::State& state) {
  const auto bytes = static_cast<size_t>(state.range(1));
  Cluster cluster(state.range(0), 1);
  const ActorHandle<Echo> echo = cluster.SpawnEcho();
  const Buffer tensor = Buffer::Copy(std::vector<char>(bytes, 'x').data(), bytes);
  for (auto _ : state) {
    const auto back = echo.Call<&Echo::Return>(tensor).Get(kTimeout);
    TROUPE_CHECK(back.ok() && back->size() == bytes);
  }
  state.SetBytesProcessed(state.iterations() * state.range(1) * 2);
  state.SetLabel(LaneName(state.range(0)));
}
BENCHMARK(TensorRoundTrip)->ArgsProduct({{kMemory, kZmq}, {16 << 20}})->UseRealTime()->Unit(benchmark::kMillisecond);

/// One all-reduce over 4 members, each on a node and a thread of its own.
void AllReduce(benchmark::State& state) {
  constexpr int kMembers = 4;
  const auto count = static_cast<size_t>(state.range(1)) / sizeof(float);
  Cluster cluster(state.range(0), kMembers);
  ChannelDescription description;
  description.number = 1;
  description.name = "bench";
  for (int rank = 0; rank < kMembers; ++rank) description.members.push_back({rank, rank + 1, "here"});

  // Member 0 is this thread, and says before every round whether there is another.
  const auto member = [&](int rank, auto&& rounds) {
    NodeChannel channel(cluster.node(rank + 1).get(), description, rank);
    Collective collective(&channel, {.name = "bench", .timeout = kTimeout});
    std::vector<float> data(count, 0.0f);
    rounds([&](bool go_on) {
      std::byte more{static_cast<unsigned char>(go_on)};
      TROUPE_CHECK(collective.Broadcast(0, absl::MakeSpan(&more, 1)).ok());
      if (more == std::byte{0}) return false;
      const absl::Status status = collective.AllReduce(absl::MakeSpan(data));
      TROUPE_CHECK(status.ok()) << status;
      return true;
    });
    TROUPE_CHECK(collective.Barrier().ok());
  };
  std::vector<std::shared_ptr<Task>> tasks;
  for (int rank = 1; rank < kMembers; ++rank) {
    tasks.push_back(cluster.scheduler().Start(absl::StrCat("member ", rank), [&, rank] {
      member(rank, [](auto&& round) {
        while (round(true)) {
        }
      });
    }));
  }
  member(0, [&](auto&& round) {
    for (auto _ : state) round(true);
    round(false);
  });
  for (const auto& task : tasks) TROUPE_CHECK(task->Join(absl::Now() + kTimeout));
  state.SetBytesProcessed(state.iterations() * state.range(1));
  state.SetLabel(LaneName(state.range(0)));
}
BENCHMARK(AllReduce)
    ->ArgsProduct({{kMemory, kZmq}, {1 << 10, 1 << 20, 16 << 20}})
    ->UseRealTime()
    ->Unit(benchmark::kMicrosecond);

/// The limit that the others are held against.
void MemoryCopy(benchmark::State& state) {
  const auto bytes = static_cast<size_t>(state.range(0));
  const std::vector<char> from(bytes, 'x');
  std::vector<char> to(bytes);
  for (auto _ : state) {
    std::memcpy(to.data(), from.data(), bytes);
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * state.range(0));
}
BENCHMARK(MemoryCopy)->Arg(16 << 20)->UseRealTime()->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace troupe::runtime

BENCHMARK_MAIN();
