/// One per host: starts the processes that the coordinator asks for, watches and reaps them, keeps what they print.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace troupe::runtime {

struct AgentOptions {
  std::string coordinator;  ///< endpoint
  std::string host;         ///< empty: this machine's name
  int cores = 0;            ///< 0: those that this process may run on
  absl::Duration join_timeout = absl::Seconds(10);
};

/// A process that the agent started never outlives it: it is in a process group that ends with the agent, and the kernel kills
/// it when the agent is killed itself. When the coordinator of another host is gone, all of them are ended.
///
/// Threads  thread-safe; the processes belong to a thread of its own.
class Agent {
 public:
  /// Blocking until the coordinator has answered.
  static absl::StatusOr<std::unique_ptr<Agent>> Start(const AgentOptions& options);
  /// Kills what still runs.
  ~Agent();
  Agent(const Agent&) = delete;
  Agent& operator=(const Agent&) = delete;

  /// As the coordinator knows it.
  const std::string& name() const;
  const std::string& host() const;
  int cores() const;

  /// Sends `signal` to every process group at once, whatever the coordinator thinks.
  void SignalAll(int signal);

 private:
  class Loop;
  explicit Agent(std::unique_ptr<Loop> loop);
  std::unique_ptr<Loop> loop_;
};

/// Cores that this process may run on.
int UsableCores();

}  // namespace troupe::runtime
