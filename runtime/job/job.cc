#include "runtime/job/job.h"

#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/actor/registry.h"
#include "runtime/base/log.h"
#include "runtime/base/status.h"
#include "runtime/job/build_id.h"
#include "runtime/job/interrupt.h"
#include "runtime/node/local_directory.h"
#include "runtime/sched/fiber_scheduler.h"
#include "runtime/sched/thread_scheduler.h"
#include "runtime/transport/in_process_transport.h"
#include "runtime/transport/zmq_transport.h"

namespace troupe::runtime {
namespace {

constexpr char kLocalHost[] = "localhost";

std::string HostName() {
  char name[256] = {};
  return gethostname(name, sizeof(name) - 1) == 0 ? name : kLocalHost;
}

/// Listens first and says hello then: who hears of this process can reach it.
absl::StatusOr<std::shared_ptr<Node>> JoinCluster(const ProcessIdentity& identity, std::shared_ptr<Scheduler> scheduler,
                                                  absl::Duration timeout, absl::Duration default_timeout) {
  ZmqTransportOptions transport_options;
  transport_options.endpoint = identity.endpoint;
  transport_options.node = identity.node;
  transport_options.incarnation = identity.incarnation;
  TROUPE_ASSIGN_OR_RETURN(std::unique_ptr<Transport> transport, ZmqTransport::Create(transport_options));
  TROUPE_ASSIGN_OR_RETURN(std::unique_ptr<Directory> directory,
                          ConnectDirectory(identity, BuildId(), RegisteredSignatureHash(), timeout));
  NodeOptions options;
  options.job_epoch = identity.job_epoch;
  options.default_timeout = default_timeout;
  return Node::Start(std::move(directory), std::move(scheduler), std::move(transport), options);
}

}  // namespace

struct Job::InterruptState {
  std::atomic<bool> interrupted{false};
  std::mutex mutex;
  std::function<void()> callback ABSL_GUARDED_BY(mutex);

  void Interrupt() {
    std::function<void()> run;
    {
      const std::lock_guard<std::mutex> lock(mutex);
      if (interrupted.exchange(true)) return;
      run = std::move(callback);
    }
    if (run) run();
  }
};

Job::Job(const JobOptions& options)
    : options_(options), interrupt_(std::make_shared<InterruptState>()), interrupted_(&interrupt_->interrupted) {}

Job::~Job() { (void)Shutdown(); }

absl::StatusOr<std::unique_ptr<Job>> Job::Start(const JobOptions& options) {
  if (options.num_workers < 1) {
    return absl::InvalidArgumentError(absl::StrCat("a job needs at least 1 worker, not ", options.num_workers));
  }
  TROUPE_ASSIGN_OR_RETURN(const std::optional<ProcessIdentity> identity, IdentityFromEnvironment());
  auto job = std::unique_ptr<Job>(new Job(options));
  if (identity.has_value()) {
    if (identity->role != ProcessIdentity::Role::kDriver) {
      return absl::FailedPreconditionError("a worker cannot start a job: call Job::RunWorkerIfAsked first in main");
    }
    TROUPE_RETURN_IF_ERROR(job->StartInCluster(*identity));
  } else {
    TROUPE_RETURN_IF_ERROR(job->StartLocal());
  }
  return job;
}

absl::Status Job::StartLocal() {
  num_workers_ = options_.num_workers;
  if (options_.deterministic) {
    scheduler_ = std::make_shared<FiberScheduler>();
  } else {
    scheduler_ = std::make_shared<ThreadScheduler>();
  }
  registry_ = std::make_shared<LocalRegistry>(scheduler_);
  const auto hub = std::make_shared<InProcessHub>();
  const std::string host = HostName();
  for (int rank = -1; rank < num_workers_; ++rank) {
    NodeAddress address;
    address.id = rank + 1;
    address.incarnation = 1;
    address.rank = rank;
    address.host = host;
    address.pid = getpid();
    NodeOptions options;
    options.default_timeout = options_.default_timeout;
    nodes_.push_back(Node::Start(std::make_shared<LocalDirectory>(registry_, address), scheduler_,
                                 std::make_unique<InProcessTransport>(hub, address.id), options));
    if (rank >= 0) workers_.push_back(address);
  }
  if (options_.watch_interrupts) {
    watcher_ = std::make_unique<InterruptWatcher>([state = interrupt_] {
      LogWarning("interrupted: the job ends after this step; once more ends it at once");
      state->Interrupt();
    });
  }
  return absl::OkStatus();
}

absl::Status Job::StartInCluster(const ProcessIdentity& identity) {
  if (options_.deterministic) {
    return absl::InvalidArgumentError("deterministic runs are local: start without a cluster (--local)");
  }
  if (options_.num_workers > identity.num_workers) {
    return absl::InvalidArgumentError(absl::StrCat("the recipe needs ", options_.num_workers,
                                                   " workers, the launcher started ", identity.num_workers));
  }
  const absl::Time deadline = absl::Now() + options_.start_timeout;
  identity_ = identity;
  num_workers_ = identity.num_workers;
  scheduler_ = std::make_shared<ThreadScheduler>();
  TROUPE_ASSIGN_OR_RETURN(std::shared_ptr<Node> driver,
                          JoinCluster(identity, scheduler_, options_.start_timeout, options_.default_timeout));
  driver->OnShutdownDo([state = interrupt_](const absl::Status&) { state->Interrupt(); });
  nodes_.push_back(std::move(driver));
  TROUPE_ASSIGN_OR_RETURN(workers_, node()->directory().WaitForWorkers(num_workers_, deadline));
  std::sort(workers_.begin(), workers_.end(), [](const auto& a, const auto& b) { return a.rank < b.rank; });
  return absl::OkStatus();
}

void Job::OnInterrupt(std::function<void()> callback) {
  {
    const std::lock_guard<std::mutex> lock(interrupt_->mutex);
    if (!interrupted()) {
      interrupt_->callback = std::move(callback);
      return;
    }
  }
  callback();
}

absl::Status Job::Shutdown() {
  if (shut_down_) return absl::OkStatus();
  shut_down_ = true;
  watcher_.reset();
  if (nodes_.empty()) return absl::OkStatus();
  if (!local()) {
    node()->OnShutdownDo([](const absl::Status&) {});
    node()->ShutDownWorkers();
  }
  absl::Status status;
  // Workers first: what they still ask of the driver is answered, if only with an error.
  for (auto it = nodes_.rbegin(); it != nodes_.rend(); ++it) {
    const absl::Status closed = (*it)->Close(options_.shutdown_timeout);
    if (status.ok()) status = closed;
  }
  return status;
}

void Job::RunWorkerIfAsked() {
  const absl::StatusOr<std::optional<ProcessIdentity>> identity = IdentityFromEnvironment();
  if (!identity.ok()) {
    LogError(std::string(identity.status().message()));
    std::exit(2);
  }
  if (!identity->has_value() || (*identity)->role != ProcessIdentity::Role::kWorker) return;
  const int status = RunWorker(**identity);
  std::fflush(nullptr);
  std::_Exit(status);  // actors that did not end in time must not see statics go
}

int Job::RunWorker(const ProcessIdentity& identity) {
  const JobOptions defaults;
  const auto scheduler = std::make_shared<ThreadScheduler>();
  const auto node = JoinCluster(identity, scheduler, defaults.start_timeout, defaults.default_timeout);
  if (!node.ok()) {
    LogError("worker rank ", identity.rank, ": ", std::string(node.status().message()));
    return 1;
  }
  std::mutex mutex;
  std::optional<absl::Status> end;
  const std::unique_ptr<WaitQueue> ended = scheduler->NewWaitQueue();
  (*node)->OnShutdownDo([&](const absl::Status& why) {
    // After Ctrl-C the driver still wants to save: it says when we are done, or dies.
    if (absl::IsCancelled(why)) return;
    const std::lock_guard<std::mutex> lock(mutex);
    if (!end.has_value()) end = why;
    ended->NotifyAll();
  });
  absl::Status why;
  {
    std::unique_lock<std::mutex> lock(mutex);
    while (!end.has_value()) ended->WaitIdle(lock);
    why = *end;
  }
  (*node)->OnShutdownDo(nullptr);
  if (!why.ok()) LogError("worker rank ", identity.rank, ": ", std::string(why.message()));
  const absl::Status closed = (*node)->Close(defaults.shutdown_timeout);
  return why.ok() && closed.ok() ? 0 : 1;
}

}  // namespace troupe::runtime
