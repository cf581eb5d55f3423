/// A recipe's way into the cluster: starts or joins it, places actors, and ends it.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "runtime/actor/handle.h"
#include "runtime/control/client.h"
#include "runtime/node/node.h"

namespace troupe::runtime {

class InProcessHub;
class InterruptWatcher;
class LocalRegistry;

struct JobOptions {
  int num_workers = 1;
  bool deterministic =
      false;  ///< local mode only: all actors and the driver take turns on one thread, in a fixed order
  bool watch_interrupts = true;  ///< local mode: Ctrl-C sets interrupted(), a second one ends the process
  absl::Duration start_timeout = absl::Minutes(1);
  absl::Duration default_timeout = absl::Hours(1);  ///< of calls that name none
  absl::Duration shutdown_timeout = absl::Seconds(10);
};

/// The driver's side of a job. The same program runs in two ways:
///   started by a launcher   the workers are processes, reached through ZeroMQ
///   started by hand         the workers are threads (or fibers) of this process, reached through memory
///
/// Threads   Spawn and LookUp from any thread in the first way and with threads; with fibers only from the thread that started it.
/// Lifetime  handles and references may outlive it, and then give errors.
class Job {
 public:
  /// In a process that was started as a worker: serves until the job ends, then exits. Returns in every other process.
  static void RunWorkerIfAsked();

  /// Errors  INVALID_ARGUMENT; DEADLINE_EXCEEDED when workers do not come up; those of the cluster.
  static absl::StatusOr<std::unique_ptr<Job>> Start(const JobOptions& options);
  /// Ends the job as Shutdown does.
  ~Job();

  /// Makes an actor on worker `options.rank`, or in the driver's process when that is -1.
  ///
  /// Blocking until its constructor has run.
  template <class A, typename... Args>
  absl::StatusOr<ActorHandle<A>> Spawn(const SpawnOptions& options, const Args&... arguments) {
    return SpawnOn<A>(node(), options, arguments...);
  }

  /// Blocking until an actor of this name is there, or `timeout`.
  template <class A>
  absl::StatusOr<ActorHandle<A>> Lookup(const std::string& name, absl::Duration timeout) {
    return LookUpActor<A>(node(), name, timeout);
  }

  int num_workers() const { return num_workers_; }
  bool local() const { return !identity_.has_value(); }
  /// What the launcher said; empty in local mode.
  const std::optional<ProcessIdentity>& identity() const { return identity_; }
  const std::shared_ptr<Node>& node() const { return nodes_.front(); }
  /// Every worker, in the order of rank.
  const std::vector<NodeAddress>& workers() const { return workers_; }
  /// What runs on a worker (-1: the driver), answered even while its actors compute.
  absl::StatusOr<NodeReport> Report(int rank, absl::Duration timeout) { return node()->ReportOf(rank + 1, timeout); }

  /// Ctrl-C was pressed, or the cluster ends: the recipe should save and return.
  bool interrupted() const { return interrupted_->load(std::memory_order_relaxed); }
  /// `callback` runs once, on a thread of its own, when that happens; at once when it has.
  void OnInterrupt(std::function<void()> callback);

  /// Ends all actors and workers; called once, or by the destructor.
  ///
  /// Blocking for at most the shutdown timeout.
  absl::Status Shutdown();

 private:
  struct InterruptState;

  explicit Job(const JobOptions& options);
  absl::Status StartLocal();
  absl::Status StartInCluster(const ProcessIdentity& identity);
  static int RunWorker(const ProcessIdentity& identity);

  const JobOptions options_;
  int num_workers_ = 0;
  std::optional<ProcessIdentity> identity_;
  std::shared_ptr<Scheduler> scheduler_;
  std::vector<std::shared_ptr<Node>> nodes_;  ///< the driver's first; in local mode the workers' too
  std::vector<NodeAddress> workers_;
  std::shared_ptr<LocalRegistry> registry_;
  std::shared_ptr<InterruptState> interrupt_;
  std::atomic<bool>* interrupted_;
  std::unique_ptr<InterruptWatcher> watcher_;
  bool shut_down_ = false;
};

}  // namespace troupe::runtime
