/// What the coordinator knows and decides, without sockets, threads or clocks: messages go in, messages come out.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "runtime/control/control.pb.h"
#include "runtime/control/internal/job_state.h"
#include "runtime/control/internal/outbox.h"

namespace troupe::runtime::internal {

struct ClusterOptions {
  /// An agent that is silent for longer is dead, and its host with it.
  absl::Duration lease = absl::Seconds(3);
  /// Given to jobs; they must differ from those of every other cluster that somebody could reach by mistake.
  uint64_t first_job_epoch = 1;
  JobTimes job_times;
};

/// Agents and their leases, jobs, and which of them a message is for.
///
/// Times are of one clock that never goes back.
class ClusterState {
 public:
  explicit ClusterState(const ClusterOptions& options) : options_(options), next_epoch_(options.first_job_epoch) {}

  /// Errors  what was wrong with the message; whoever asked was told already.
  absl::Status Handle(const std::string& peer, const control::Message& message, absl::Time now);
  /// Does what has become due.
  void Tick(absl::Time now);
  absl::Time NextDeadline() const;
  /// The coordinator itself did not run for a while: nobody's silence in that time counts.
  void ForgiveSilence(absl::Time now);
  /// Messages to send, in order.
  std::vector<Outgoing> TakeOutgoing();

 private:
  struct Agent {
    std::string host;
    int cores = 0;
    absl::Time last_heard;
  };

  absl::Status Dispatch(const std::string& peer, const control::Message& message, absl::Time now);
  absl::Status AddAgent(const std::string& peer, const control::Message& message, absl::Time now);
  absl::Status SubmitJob(const std::string& peer, const control::Message& message, absl::Time now);
  void LoseAgent(const std::string& peer, const absl::Status& why, absl::Time now);
  /// The agents that run ranks 0, 1, ...: neighbours share a host as far as its cores go.
  std::vector<Placement> PlaceWorkers(int count) const;

  const ClusterOptions options_;
  Outbox outbox_;
  std::map<std::string, Agent> agents_;
  uint64_t next_epoch_;
  std::map<uint64_t, std::unique_ptr<JobState>> jobs_;
};

}  // namespace troupe::runtime::internal
