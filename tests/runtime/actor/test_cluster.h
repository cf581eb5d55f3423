/// Nodes inside the test's process, over either transport and either scheduler; nodes can be killed and started again.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/base/check.h"
#include "runtime/node/local_directory.h"
#include "runtime/node/node.h"
#include "runtime/sched/fiber_scheduler.h"
#include "runtime/sched/thread_scheduler.h"
#include "runtime/transport/in_process_transport.h"
#include "runtime/transport/zmq_transport.h"

namespace troupe::runtime {

enum class Lane { kThreads, kFibers, kZmq };

inline std::string LaneName(const ::testing::TestParamInfo<Lane>& param) {
  switch (param.param) {
    case Lane::kThreads:
      return "Threads";
    case Lane::kFibers:
      return "Fibers";
    case Lane::kZmq:
      return "Zmq";
  }
  return "";
}

class TestCluster {
 public:
  TestCluster(Lane lane, int workers) : lane_(lane) {
    if (lane == Lane::kFibers) {
      scheduler_ = std::make_shared<FiberScheduler>();
    } else {
      scheduler_ = std::make_shared<ThreadScheduler>();
    }
    registry_ = std::make_shared<LocalRegistry>(scheduler_);
    for (int node = 0; node <= workers; ++node) Start(node, 1);
  }

  ~TestCluster() {
    for (auto& [id, node] : nodes_) EXPECT_TRUE(node->Close(absl::Minutes(1)).ok());
    for (auto& node : dead_) EXPECT_TRUE(node->Close(absl::Minutes(1)).ok());
  }

  void Start(int id, uint32_t incarnation) {
    NodeAddress address;
    address.id = id;
    address.incarnation = incarnation;
    address.rank = id - 1;
    address.host = absl::StrCat("host", id);
    std::unique_ptr<Transport> transport;
    if (lane_ == Lane::kZmq) {
      static int unique = 0;
      ZmqTransportOptions options;
      options.endpoint = absl::StrCat("ipc://@troupe-test-", getpid(), "-", ++unique);
      options.node = id;
      options.incarnation = incarnation;
      auto made = ZmqTransport::Create(options);
      TROUPE_CHECK(made.ok()) << made.status();
      address.endpoint = (*made)->endpoint();
      transport = *std::move(made);
    } else {
      transport = std::make_unique<InProcessTransport>(hub_, id);
    }
    NodeOptions options;
    options.default_timeout = absl::Minutes(2);
    addresses_[id] = address;
    nodes_[id] =
        Node::Start(std::make_shared<LocalDirectory>(registry_, address), scheduler_, std::move(transport), options);
  }

  /// The node's process is gone as far as the others can see.
  void Kill(int id) {
    registry_->KillNode(id, absl::UnavailableError(absl::StrCat("rank ", id - 1, " was killed by signal 9")));
    dead_.push_back(nodes_[id]);
    nodes_.erase(id);
  }
  void Restart(int id) { Start(id, addresses_[id].incarnation + 1); }

  const std::shared_ptr<Node>& node(int id) { return nodes_[id]; }
  const std::shared_ptr<Node>& driver() { return nodes_[0]; }
  Scheduler& scheduler() { return *scheduler_; }
  const NodeAddress& address(int id) { return addresses_[id]; }
  LocalRegistry& registry() { return *registry_; }

 private:
  const Lane lane_;
  std::shared_ptr<Scheduler> scheduler_;
  std::shared_ptr<LocalRegistry> registry_;
  std::shared_ptr<InProcessHub> hub_ = std::make_shared<InProcessHub>();
  std::map<int, std::shared_ptr<Node>> nodes_;
  std::vector<std::shared_ptr<Node>> dead_;
  std::map<int, NodeAddress> addresses_;
};

/// Something that tests open so that an actor can go on; waits through the scheduler.
class Gate {
 public:
  explicit Gate(Scheduler& scheduler) : scheduler_(scheduler), changed_(scheduler.NewWaitQueue()) {}
  void Open() {
    const std::lock_guard<std::mutex> lock(mutex_);
    open_ = true;
    changed_->NotifyAll();
  }
  absl::Status Wait() {
    std::unique_lock<std::mutex> lock(mutex_);
    return WaitUntil(
        scheduler_, *changed_, lock, absl::Now() + absl::Minutes(2), [] { return std::string("a gate"); },
        [this] { return open_; });
  }

 private:
  Scheduler& scheduler_;
  std::mutex mutex_;
  std::unique_ptr<WaitQueue> changed_;
  bool open_ = false;
};

}  // namespace troupe::runtime
