#include "runtime/process/agent.h"

#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <deque>
#include <list>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "runtime/base/check.h"
#include "runtime/base/log.h"
#include "runtime/base/status.h"
#include "runtime/control/client.h"
#include "runtime/control/coordinator.h"
#include "runtime/control/internal/connection.h"
#include "runtime/control/internal/wire.h"
#include "runtime/process/child.h"
#include "runtime/process/exit_status.h"
#include "runtime/process/worker_output.h"

namespace troupe::runtime {
namespace {

/// Of a clock that never goes back.
absl::Time Now() { return absl::UnixEpoch() + absl::FromChrono(std::chrono::steady_clock::now().time_since_epoch()); }

std::string HostName() {
  char name[256] = {};
  return gethostname(name, sizeof(name) - 1) == 0 && name[0] != '\0' ? name : "localhost";
}

}  // namespace

int UsableCores() {
  cpu_set_t cores;
  if (sched_getaffinity(0, sizeof(cores), &cores) == 0) return std::max(1, CPU_COUNT(&cores));
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

class Agent::Loop {
 public:
  explicit Loop(const AgentOptions& options)
      : coordinator_(options.coordinator),
        host_(options.host.empty() ? HostName() : options.host),
        cores_(options.cores > 0 ? options.cores : UsableCores()),
        name_(absl::StrCat("agent-", host_, "-", RandomName())),
        kills_at_start_(OutOfMemoryKills()) {
    wake_fd_ = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    TROUPE_CHECK_GE(wake_fd_, 0) << std::strerror(errno);
  }

  ~Loop() {
    Push({});
    if (thread_.joinable()) thread_.join();
    connection_.reset();
    close(wake_fd_);
  }

  absl::Status Start(absl::Duration timeout) {
    internal::ConnectionOptions options;
    options.coordinator = coordinator_;
    options.name = name_;
    const auto on_message = [this](const control::Message& message) { Push(message); };
    const auto on_lost = [this](const absl::Status& why) {
      LogError("agent on ", host_, ": ", std::string(why.message()), "; its processes are ended");
      SignalAll(SIGKILL);
    };
    TROUPE_ASSIGN_OR_RETURN(connection_, internal::Connection::Open(options, on_message, on_lost));
    // The kernel ties the processes to the thread that starts them, so that thread lives until they are gone.
    thread_ = std::thread([this] {
      pthread_setname_np(pthread_self(), "troupe-agent");
      Run();
    });
    control::Message hello;
    hello.mutable_agent_hello()->set_protocol(internal::kControlProtocol);
    hello.mutable_agent_hello()->set_host(host_);
    hello.mutable_agent_hello()->set_pid(getpid());
    hello.mutable_agent_hello()->set_cores(cores_);
    return Annotate(connection_->Ask(std::move(hello), timeout).status(), "the agent cannot join");
  }

  void SignalAll(int signal) {
    const std::lock_guard<std::mutex> lock(groups_mutex_);
    for (const pid_t group : groups_) kill(-group, signal);
  }

  const std::string& name() const { return name_; }
  const std::string& host() const { return host_; }
  int cores() const { return cores_; }

 private:
  struct Process {
    uint64_t job_epoch = 0;
    control::Node node;
    Child child;
    std::optional<WorkerOutput> output;  ///< the driver has the terminal
    absl::Time terminate_at = absl::InfiniteFuture();
    absl::Time kill_at = absl::InfiniteFuture();
    size_t lines_dropped = 0;
  };

  /// Nothing means: the end.
  void Push(std::optional<control::Message> message) {
    {
      const std::lock_guard<std::mutex> lock(inbox_mutex_);
      inbox_.push_back(std::move(message));
    }
    const uint64_t one = 1;
    (void)!write(wake_fd_, &one, sizeof(one));
  }

  void Run() {
    while (!ending_) {
      Poll();
      RunInbox();
      RunTimers();
    }
    SignalAll(SIGKILL);
    for (Process& process : processes_) Reap(process, /*wait=*/true);
    processes_.clear();
  }

  void Poll() {
    absl::Time next = absl::InfiniteFuture();
    std::vector<pollfd> fds = {{wake_fd_, POLLIN, 0}};
    for (const Process& process : processes_) {
      next = std::min({next, process.terminate_at, process.kill_at});
      fds.push_back({process.child.pid_fd, POLLIN, 0});
      fds.push_back({process.output.has_value() ? process.output->read_fd() : -1, POLLIN, 0});
    }
    int wait_ms = -1;
    if (next != absl::InfiniteFuture()) {
      const absl::Duration left = std::clamp(next - Now(), absl::ZeroDuration(), absl::Hours(1));
      wait_ms = static_cast<int>(absl::ToInt64Milliseconds(absl::Ceil(left, absl::Milliseconds(1))));
    }
    if (poll(fds.data(), fds.size(), wait_ms) <= 0) return;
    uint64_t count = 0;
    (void)!read(wake_fd_, &count, sizeof(count));
    size_t next_fd = 1;
    for (Process& process : processes_) {
      const bool ended = fds[next_fd++].revents != 0;
      if (fds[next_fd++].revents != 0) SendLines(process, process.output->Read());
      if (ended) Reap(process, /*wait=*/false);
    }
    std::erase_if(processes_, [](const Process& process) { return process.child.pid < 0; });
  }

  void RunInbox() {
    std::deque<std::optional<control::Message>> messages;
    {
      const std::lock_guard<std::mutex> lock(inbox_mutex_);
      messages.swap(inbox_);
    }
    for (const auto& message : messages) {
      if (!message.has_value()) {
        ending_ = true;
      } else if (message->has_start_process()) {
        StartProcess(*message);
      } else if (message->has_stop_process()) {
        StopProcess(*message);
      } else if (message->has_signal_process()) {
        Process* process = Find(message->job_epoch(), message->signal_process().node());
        if (process != nullptr) kill(process->child.pid, message->signal_process().signal());
      } else if (message->has_set_log_directory()) {
        SetLogDirectory(*message);
      }
    }
  }

  void RunTimers() {
    const absl::Time now = Now();
    for (Process& process : processes_) {
      if (process.terminate_at <= now) {
        process.terminate_at = absl::InfiniteFuture();
        kill(-process.child.pid, SIGTERM);
        kill(-process.child.pid, SIGCONT);  // one that is stopped would not hear it
      }
      if (process.kill_at <= now) {
        process.kill_at = absl::InfiniteFuture();
        kill(-process.child.pid, SIGKILL);
      }
    }
  }

  void StartProcess(const control::Message& message) {
    const control::StartProcess& start = message.start_process();
    Process process;
    process.job_epoch = message.job_epoch();
    process.node = start.node();
    const absl::Status started = Spawn(start, &process);
    if (!started.ok()) {
      control::Message failed = NewMessage(process);
      control::ProcessExited& exited = *failed.mutable_process_exited();
      exited.set_node(process.node.id());
      exited.set_incarnation(process.node.incarnation());
      exited.set_exit_code(1);
      exited.set_never_ran(true);
      exited.set_what(absl::StrCat("could not be started: ", started.message()));
      connection_->Send(std::move(failed));
      return;
    }
    {
      const std::lock_guard<std::mutex> lock(groups_mutex_);
      groups_.insert(process.child.pid);
    }
    control::Message done = NewMessage(process);
    done.mutable_process_started()->set_node(process.node.id());
    done.mutable_process_started()->set_incarnation(process.node.incarnation());
    done.mutable_process_started()->set_pid(process.child.pid);
    connection_->Send(std::move(done));
    processes_.push_back(std::move(process));
  }

  absl::Status Spawn(const control::StartProcess& start, Process* process) {
    const bool driver = start.node().id() == 0;
    ProcessIdentity identity;
    identity.role = driver ? ProcessIdentity::Role::kDriver : ProcessIdentity::Role::kWorker;
    identity.node = start.node().id();
    identity.incarnation = start.node().incarnation();
    identity.job_epoch = process->job_epoch;
    identity.rank = start.node().rank();
    identity.num_workers = start.num_workers();
    identity.mesh = start.mesh();
    identity.coordinator = coordinator_;
    // Names of abstract sockets are everybody's; only a random one is ours for sure.
    identity.endpoint = absl::StrCat("ipc://@troupe-", RandomName(), "-", identity.node, "-", identity.incarnation);
    identity.host = host_;
    identity.job_dir = start.job_dir();

    ChildSpec spec;
    spec.command.assign(start.command().begin(), start.command().end());
    spec.environment = EnvironmentOf(identity);
    for (char** variable = environ; *variable != nullptr; ++variable) {
      if (!IsIdentityVariable(*variable)) spec.environment.push_back(*variable);
    }
    spec.working_directory = start.working_directory();
    if (!driver) {
      const auto moved = log_directories_.find(process->job_epoch);
      const std::string& directory = moved == log_directories_.end() ? start.job_dir() : moved->second;
      TROUPE_ASSIGN_OR_RETURN(WorkerOutput output, WorkerOutput::Open(start.node().rank(), directory));
      process->output.emplace(std::move(output));
      spec.null_stdin = true;
      spec.output_fd = process->output->write_fd();
    }
    TROUPE_ASSIGN_OR_RETURN(process->child, SpawnChild(spec));
    if (process->output.has_value()) process->output->CloseWriteEnd();
    return absl::OkStatus();
  }

  void StopProcess(const control::Message& message) {
    Process* process = Find(message.job_epoch(), message.stop_process().node());
    if (process == nullptr) return;
    const absl::Time now = Now();
    const auto after = [now](int32_t ms) { return now + absl::Milliseconds(ms); };
    process->terminate_at = std::min(process->terminate_at, after(message.stop_process().terminate_after_ms()));
    process->kill_at = std::min(process->kill_at, after(message.stop_process().kill_after_ms()));
  }

  /// Reports a process that has ended, and takes it and what is left of its group from the system.
  void Reap(Process& process, bool wait) {
    siginfo_t info = {};
    const auto pid_fd = static_cast<id_t>(process.child.pid_fd);
    // Its number stays taken until it is reaped, so that the group that is killed here can be no other.
    while (waitid(P_PIDFD, pid_fd, &info, WEXITED | WNOWAIT | (wait ? 0 : WNOHANG)) != 0 && errno == EINTR) {
    }
    if (info.si_pid == 0) return;
    {
      const std::lock_guard<std::mutex> lock(groups_mutex_);
      groups_.erase(process.child.pid);
      kill(-process.child.pid, SIGKILL);
    }
    while (waitid(P_PIDFD, pid_fd, &info, WEXITED) != 0 && errno == EINTR) {
    }
    close(process.child.pid_fd);

    if (process.output.has_value()) SendLines(process, process.output->ReadRest(), /*all=*/true);
    control::Message message = NewMessage(process);
    control::ProcessExited& exited = *message.mutable_process_exited();
    exited.set_node(process.node.id());
    exited.set_incarnation(process.node.incarnation());
    exited.set_pid(process.child.pid);
    const bool signalled = info.si_code != CLD_EXITED;
    exited.set_signal(signalled ? info.si_status : 0);
    exited.set_exit_code(signalled ? 0 : info.si_status);
    exited.set_what(DescribeExit(info, OutOfMemoryKills() > kills_at_start_));
    if (process.output.has_value()) {
      for (const std::string& line : process.output->last_lines()) *exited.add_last_lines() = line;
      exited.set_log_file(process.output->path());
    }
    connection_->Send(std::move(message));
    process.child.pid = -1;
  }

  void SendLines(Process& process, std::vector<std::string> lines, bool all = false) {
    constexpr size_t kMostWaiting = 1000;
    constexpr size_t kMostBytes = 1 << 18;
    if (connection_->waiting() > kMostWaiting) {
      process.lines_dropped += lines.size();
      lines.clear();
    }
    if (process.lines_dropped > 0 && (all || !lines.empty())) {
      lines.push_back(absl::StrCat("(", std::exchange(process.lines_dropped, 0), " lines came too fast: they are only in ",
                                   process.output->path(), ")"));
    }
    for (size_t i = 0; i < lines.size();) {
      control::Message message = NewMessage(process);
      message.mutable_log_lines()->set_rank(process.node.rank());
      for (size_t bytes = 0; i < lines.size() && bytes < kMostBytes; ++i) {
        bytes += lines[i].size() + 1;
        *message.mutable_log_lines()->add_lines() = std::move(lines[i]);
      }
      connection_->Send(std::move(message));
    }
  }

  void SetLogDirectory(const control::Message& message) {
    const std::string& directory = message.set_log_directory().directory();
    absl::Status status;
    for (Process& process : processes_) {
      if (process.job_epoch != message.job_epoch() || !process.output.has_value()) continue;
      const absl::Status moved = process.output->MoveTo(directory);
      if (status.ok()) status = moved;
    }
    if (status.ok()) log_directories_[message.job_epoch()] = directory;
    control::Message answer;
    answer.set_job_epoch(message.job_epoch());
    answer.set_request(message.request());
    *answer.mutable_answer()->mutable_status() = internal::ToControl(Annotate(status, absl::StrCat("host ", host_)));
    connection_->Send(std::move(answer));
  }

  Process* Find(uint64_t job_epoch, int32_t node) {
    const auto found = std::find_if(processes_.begin(), processes_.end(), [&](const Process& process) {
      return process.job_epoch == job_epoch && process.node.id() == node;
    });
    return found == processes_.end() ? nullptr : &*found;
  }

  static control::Message NewMessage(const Process& process) {
    control::Message message;
    message.set_job_epoch(process.job_epoch);
    return message;
  }

  const std::string coordinator_;
  const std::string host_;
  const int cores_;
  const std::string name_;
  const int64_t kills_at_start_;
  int wake_fd_ = -1;
  std::unique_ptr<internal::Connection> connection_;
  std::thread thread_;

  std::mutex inbox_mutex_;
  std::deque<std::optional<control::Message>> inbox_ ABSL_GUARDED_BY(inbox_mutex_);
  /// Process groups that are not reaped: only these may be signalled.
  std::mutex groups_mutex_;
  std::set<pid_t> groups_ ABSL_GUARDED_BY(groups_mutex_);

  // The thread's own.
  std::list<Process> processes_;
  std::map<uint64_t, std::string> log_directories_;
  bool ending_ = false;
};

Agent::Agent(std::unique_ptr<Loop> loop) : loop_(std::move(loop)) {}
Agent::~Agent() = default;

absl::StatusOr<std::unique_ptr<Agent>> Agent::Start(const AgentOptions& options) {
  auto agent = std::unique_ptr<Agent>(new Agent(std::make_unique<Loop>(options)));
  TROUPE_RETURN_IF_ERROR(agent->loop_->Start(options.join_timeout));
  return agent;
}

const std::string& Agent::name() const { return loop_->name(); }
const std::string& Agent::host() const { return loop_->host(); }
int Agent::cores() const { return loop_->cores(); }
void Agent::SignalAll(int signal) { loop_->SignalAll(signal); }

}  // namespace troupe::runtime
