#include "runtime/process/job_runner.h"

#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <deque>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/match.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "runtime/base/status.h"
#include "runtime/control/coordinator.h"
#include "runtime/control/internal/connection.h"
#include "runtime/control/internal/wire.h"
#include "runtime/process/agent.h"
#include "runtime/process/exit_status.h"
#include "runtime/process/job_directory.h"
#include "runtime/process/log_merger.h"

namespace troupe::runtime {
namespace {

constexpr int kSignalBase = 128;
constexpr absl::Duration kFoldWindow = absl::Milliseconds(100);
/// A killed job's processes are gone in far less.
constexpr absl::Duration kKillPatience = absl::Seconds(1);
constexpr absl::Duration kSubmitTimeout = absl::Seconds(10);

absl::Time Now() { return absl::UnixEpoch() + absl::FromChrono(std::chrono::steady_clock::now().time_since_epoch()); }

/// Messages on their way from the connection's thread to the main one, with a bound on lines that a slow terminal has to show.
class EventQueue {
 public:
  EventQueue() : fd_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {}
  ~EventQueue() { close(fd_); }

  int fd() const { return fd_; }

  void Push(const control::Message& message) {
    constexpr int kMostLines = 20000;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      const int lines = message.has_log_lines() ? message.log_lines().lines_size() : 0;
      if (lines_ + lines > kMostLines) {
        dropped_ += lines;
        return;
      }
      lines_ += lines;
      messages_.push_back(message);
    }
    const uint64_t one = 1;
    (void)!write(fd_, &one, sizeof(one));
  }

  std::deque<control::Message> Take(int* dropped) {
    uint64_t count = 0;
    (void)!read(fd_, &count, sizeof(count));
    const std::lock_guard<std::mutex> lock(mutex_);
    lines_ = 0;
    *dropped = std::exchange(dropped_, 0);
    return std::exchange(messages_, {});
  }

 private:
  const int fd_;
  std::mutex mutex_;
  std::deque<control::Message> messages_ ABSL_GUARDED_BY(mutex_);
  int lines_ ABSL_GUARDED_BY(mutex_) = 0;
  int dropped_ ABSL_GUARDED_BY(mutex_) = 0;
};

/// Signals as something to read; as before when it goes.
class SignalFd {
 public:
  SignalFd() {
    sigemptyset(&signals_);
    for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGTSTP}) sigaddset(&signals_, signal);
    pthread_sigmask(SIG_BLOCK, &signals_, &before_);
    fd_ = signalfd(-1, &signals_, SFD_NONBLOCK | SFD_CLOEXEC);
  }
  ~SignalFd() {
    close(fd_);
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }

  int fd() const { return fd_; }
  /// 0 when there is none.
  int Take() {
    signalfd_siginfo info = {};
    return read(fd_, &info, sizeof(info)) == sizeof(info) ? static_cast<int>(info.ssi_signo) : 0;
  }

 private:
  sigset_t signals_ = {};
  sigset_t before_ = {};
  int fd_ = -1;
};

class JobRunner {
 public:
  explicit JobRunner(const JobSpec& spec) : spec_(spec), merger_(spec.num_workers, kFoldWindow), terminal_(isatty(STDERR_FILENO) == 1) {}

  absl::StatusOr<int> Run() {
    signal(SIGPIPE, SIG_IGN);  // whoever read our output has gone: the job goes on
    TROUPE_ASSIGN_OR_RETURN(directory_, JobDirectory::Create());
    TROUPE_ASSIGN_OR_RETURN(coordinator_, Coordinator::Start(CoordinatorOptions()));
    AgentOptions agent_options;
    agent_options.coordinator = coordinator_->endpoint();
    TROUPE_ASSIGN_OR_RETURN(agent_, Agent::Start(agent_options));
    TROUPE_RETURN_IF_ERROR(Submit());
    while (!exit_code_.has_value()) {
      Poll();
      while (const int signal = signals_.Take()) OnSignal(signal);
      int dropped = 0;
      for (const control::Message& message : events_.Take(&dropped)) OnMessage(message);
      if (dropped > 0) Say(absl::StrCat(dropped, " lines of workers were not shown: the terminal is slow, their logs have them"));
      for (const std::string& line : merger_.Take(Now())) Print(line);
      if (Now() >= give_up_at_) break;
    }
    for (const std::string& line : merger_.TakeAll()) Print(line);
    ReportEnd();
    return ExitCode();
  }

 private:
  absl::Status Submit() {
    if (spec_.num_workers > agent_->cores()) {
      Say(absl::StrCat("warning: ", spec_.num_workers, " workers share ", agent_->cores(), " cores of ", agent_->host()));
    }
    internal::ConnectionOptions options;
    options.coordinator = coordinator_->endpoint();
    options.name = absl::StrCat("launcher-", RandomName());
    TROUPE_ASSIGN_OR_RETURN(connection_, internal::Connection::Open(
                                             options, [this](const control::Message& message) { events_.Push(message); },
                                             [](const absl::Status&) {}));
    control::Message message;
    control::SubmitJob& job = *message.mutable_submit_job();
    job.mutable_command()->Add(spec_.command.begin(), spec_.command.end());
    std::error_code error;
    job.set_working_directory(std::filesystem::current_path(error).string());
    job.set_num_workers(spec_.num_workers);
    job.set_mesh(spec_.mesh);
    job.set_job_dir(directory_->path());
    job.set_driver_agent(agent_->name());
    TROUPE_ASSIGN_OR_RETURN(const control::Answer answer, connection_->Ask(std::move(message), kSubmitTimeout));
    epoch_ = answer.job_epoch();
    return absl::OkStatus();
  }

  void Poll() {
    const absl::Duration left = std::min(merger_.NextDeadline(), give_up_at_) - Now();
    pollfd fds[] = {{signals_.fd(), POLLIN, 0}, {events_.fd(), POLLIN, 0}};
    const int wait_ms =
        left == absl::InfiniteDuration()
            ? -1
            : static_cast<int>(absl::ToInt64Milliseconds(absl::Ceil(std::max(left, absl::ZeroDuration()), absl::Milliseconds(1))));
    (void)poll(fds, 2, wait_ms);
  }

  void OnMessage(const control::Message& message) {
    if (message.has_log_lines()) {
      for (const std::string& line : message.log_lines().lines()) merger_.Add(message.log_lines().rank(), line, Now());
    } else if (message.has_job_started()) {
      SayPlacement(message.job_started());
    } else if (message.has_node_down()) {
      OnNodeDown(message.node_down());
    } else if (message.has_job_ended()) {
      exit_code_ = message.job_ended().exit_code();
    }
  }

  void SayPlacement(const control::JobStarted& started) {
    std::map<std::string, std::vector<int>> ranks;  // by host
    for (const control::Node& node : started.nodes()) {
      if (node.rank() >= 0) ranks[node.host()].push_back(node.rank());
    }
    std::vector<std::string> places;
    for (const auto& [host, of_host] : ranks) {
      places.push_back(absl::StrCat(of_host.size() == 1 ? "rank " : "ranks ", FormatRanks(of_host), " on ", host));
    }
    Say(absl::StrCat(spec_.num_workers, spec_.num_workers == 1 ? " worker" : " workers",
                     spec_.mesh.empty() ? "" : absl::StrCat(" as ", spec_.mesh), ": ", absl::StrJoin(places, ", ")));
  }

  void OnNodeDown(const control::NodeDown& down) {
    for (const std::string& line : merger_.TakeAll()) Print(line);
    if (down.restarts()) return Say(absl::StrCat(down.why().message(), "; it is started again"));
    Say(down.why().message());
    if (!down.ends_job()) return;
    if (!down.last_lines().empty()) {
      Say(absl::StrCat("its last lines, from ", down.log_file(), ":"));
      for (const std::string& line : down.last_lines()) Print(absl::StrCat("    ", line));
    }
    if (!down.log_file().empty() && absl::StartsWith(down.log_file(), directory_->path())) keep_logs_ = true;
  }

  void OnSignal(int signal) {
    if (signal == SIGTSTP) {
      agent_->SignalAll(SIGSTOP);
      raise(SIGSTOP);
      agent_->SignalAll(SIGCONT);
      return;
    }
    if (interrupted_by_ == 0) {
      interrupted_by_ = signal;
      Say(signal == SIGINT ? "interrupted: the job saves and ends; Ctrl-C again kills it"
                           : absl::StrCat(SignalName(signal), ": the job saves and ends; a second signal kills it"));
      SendCancel(signal);
    } else if (give_up_at_ == absl::InfiniteFuture()) {
      Say("killing all processes of the job");
      agent_->SignalAll(SIGKILL);
      control::Message kill_job;
      kill_job.set_job_epoch(epoch_);
      kill_job.mutable_kill_job();
      connection_->Send(std::move(kill_job));
      killed_ = true;
      give_up_at_ = Now() + kKillPatience;
    }
  }

  void SendCancel(int signal) {
    control::Message cancel;
    cancel.set_job_epoch(epoch_);
    *cancel.mutable_cancel_job()->mutable_why() =
        internal::ToControl(absl::CancelledError(absl::StrCat("interrupted by ", SignalName(signal))));
    connection_->Send(std::move(cancel));
  }

  int ExitCode() const {
    const int code = exit_code_.value_or(kSignalBase + SIGKILL);
    // After an interrupt, the driver's ways to say so all mean the same.
    const bool as_asked = code == 0 || code == kSignalBase + SIGINT || killed_;
    return interrupted_by_ != 0 && as_asked ? kSignalBase + interrupted_by_ : code;
  }

  void ReportEnd() {
    if (!keep_logs_) return;
    directory_->Keep();
    Say(absl::StrCat("the logs of all workers are in ", directory_->path(), " until the next job starts"));
  }

  void Say(absl::string_view text) { Print(absl::StrCat("launcher: ", text)); }

  void Print(absl::string_view line) {
    // The driver's progress line may stand where the cursor is.
    const std::string text = absl::StrCat(terminal_ ? "\r\033[K" : "", line, "\n");
    for (size_t done = 0; done < text.size();) {
      const ssize_t wrote = write(STDERR_FILENO, text.data() + done, text.size() - done);
      if (wrote < 0 && errno == EINTR) continue;
      if (wrote < 0) return;
      done += static_cast<size_t>(wrote);
    }
  }

  const JobSpec spec_;
  SignalFd signals_;  // before anything that has threads
  EventQueue events_;
  LogMerger merger_;
  const bool terminal_;
  std::unique_ptr<JobDirectory> directory_;
  std::unique_ptr<Coordinator> coordinator_;
  std::unique_ptr<Agent> agent_;
  std::unique_ptr<internal::Connection> connection_;
  uint64_t epoch_ = 0;
  std::optional<int> exit_code_;
  int interrupted_by_ = 0;
  bool killed_ = false;
  bool keep_logs_ = false;
  absl::Time give_up_at_ = absl::InfiniteFuture();
};

}  // namespace

absl::StatusOr<int> RunJob(const JobSpec& spec) { return JobRunner(spec).Run(); }

}  // namespace troupe::runtime
