/// One job as the coordinator sees it: its nodes and names, who may be started again, and how it ends.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "runtime/control/control.pb.h"
#include "runtime/control/internal/outbox.h"

namespace troupe::runtime::internal {

struct JobTimes {
  /// After a worker's death the driver may report and save for so long.
  absl::Duration driver_farewell = absl::Seconds(1);
  /// Workers may end on their own for so long after a driver that ended well.
  absl::Duration worker_farewell = absl::Seconds(5);
  /// From SIGTERM to SIGKILL.
  absl::Duration terminate_grace = absl::Milliseconds(300);
};

/// Where a process runs.
struct Placement {
  std::string agent;
  std::string host;
};

/// The job ends when its driver does, with the driver's exit status, or when a worker dies that may not be started again:
/// then all hear of it, the driver has a moment, and the exit status is not 0.
class JobState {
 public:
  static constexpr int32_t kDriver = 0;

  JobState(uint64_t epoch, std::string launcher, control::SubmitJob spec, const JobTimes& times, Outbox* outbox);

  /// Has all processes started: the driver on `driver`, rank r on `workers[r]`.
  void Start(const Placement& driver, const std::vector<Placement>& workers, absl::Time now);

  /// Errors  as ClusterState::Handle.
  absl::Status Handle(const std::string& peer, const control::Message& message, absl::Time now);
  void Tick(absl::Time now);
  absl::Time NextDeadline() const;

  void OnAgentLost(const std::string& agent, const absl::Status& why);
  /// All processes are gone and the launcher was told.
  bool ended() const { return told_end_; }
  const std::string& launcher() const { return launcher_; }

 private:
  struct Process {
    control::Node node;
    std::string agent;
    std::string peer;      ///< its own connection; empty before its hello
    bool running = false;  ///< as far as its agent says
    bool leaving = false;  ///< it said goodbye
    bool stopping = false;
    int max_restarts = 0;
    int restarts = 0;
  };
  struct Lookup {
    std::string peer;
    control::Message question;
    absl::Time deadline;
  };

  void StartProcess(Process& process);
  absl::Status NodeHello(const std::string& peer, const control::Message& message);
  absl::Status CheckBuild(const control::NodeHello& hello);
  absl::Status ProcessStarted(const std::string& peer, const control::ProcessStarted& started);
  absl::Status ProcessExited(const std::string& peer, const control::ProcessExited& exited);
  absl::Status Register(const control::RegisterName& name);
  absl::Status Remove(const control::RemoveName& name);
  void LookUp(const std::string& peer, const control::Message& question, absl::Time now);
  void AnswerLookups(const std::string& name);
  absl::Status SetMaxRestarts(const control::SetMaxRestarts& budget);
  absl::Status SetLogDirectory(const std::string& peer, const control::Message& message);
  void OnLogDirectoryAnswer(const std::string& agent, const control::Message& message);
  void Cancel(const absl::Status& why);
  void Kill();

  /// What follows from the death of a process; `exit_code` is what it means for the job when it is the driver.
  void Died(Process& process, const control::ProcessExited& exited, const absl::Status& why);
  void DriverDied(const control::ProcessExited& exited, const absl::Status& why);
  void WorkerDied(Process& process, const control::ProcessExited& exited, const absl::Status& why);
  void StopProcess(Process& process, absl::Duration terminate_after, absl::Duration kill_after);
  void EndWorkers(absl::Duration farewell);
  void TellEndWhenAllGone();

  control::Message NewMessage() const;
  void Broadcast(const control::Message& message, int32_t except);
  void TellLauncher(control::Message message) { outbox_->Send(launcher_, std::move(message)); }
  Process* Find(int32_t node, uint32_t incarnation);
  std::set<std::string> Agents() const;
  std::string Describe(const control::Node& node) const;

  const uint64_t epoch_;
  const std::string launcher_;
  const control::SubmitJob spec_;
  const JobTimes times_;
  Outbox* const outbox_;

  std::map<int32_t, Process> processes_;
  std::map<std::string, control::RegisterName> names_;
  std::vector<Lookup> lookups_;
  std::optional<control::NodeHello> first_hello_;  ///< what all others must agree with
  bool told_started_ = false;

  std::optional<absl::Status> shutdown_;  ///< told to every node, also to those that come later
  bool cancelled_ = false;
  bool worker_lost_ = false;  ///< one that may not be started again: the job has failed
  bool ending_ = false;  ///< the driver is gone: nothing that happens now changes how the job ended
  int exit_code_ = 0;
  absl::Status why_;
  bool told_end_ = false;

  struct LogDirectoryRequest {
    std::string peer;
    control::Message question;
    std::set<std::string> waiting;  ///< agents that have not answered
    absl::Status status;
  };
  std::map<uint64_t, LogDirectoryRequest> log_requests_;
  uint64_t next_log_request_ = 1;
};

}  // namespace troupe::runtime::internal
