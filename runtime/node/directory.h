/// Who takes part in a job: nodes that come and go, and the names of actors.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace troupe::runtime {

/// One process of a job (in local mode: one of several nodes inside a process).
struct NodeAddress {
  int32_t id = -1;           ///< 0 is the driver, worker rank r is r + 1
  uint32_t incarnation = 0;  ///< grows with every restart of the same id
  int32_t rank = -1;         ///< worker rank, -1 for the driver
  std::string endpoint;      ///< where its transport listens; empty in local mode
  std::string host;
  int64_t pid = 0;
};

/// Where a named actor lives.
struct ActorAddress {
  int32_t node = -1;
  uint64_t actor = 0;  ///< number of the actor on its node, the same after a restart
  std::string class_name;
};

/// Answers who is there; one implementation asks the coordinator, the other serves local mode from memory.
///
/// Threads  thread-safe.
class Directory {
 public:
  /// Told about changes from the directory's own thread; must not block.
  class Listener {
   public:
    virtual ~Listener() = default;
    virtual void OnNodeUp(const NodeAddress& node) = 0;
    /// `why` names actor-visible facts: rank, host, signal or exit status.
    virtual void OnNodeDown(const NodeAddress& node, const absl::Status& why) = 0;
    /// The job ends: Ctrl-C (`why` is CANCELLED), or the driver is gone.
    virtual void OnShutdown(const absl::Status& why) = 0;
  };

  virtual ~Directory() = default;

  virtual const NodeAddress& self() const = 0;
  /// Replays the nodes that are already up, then reports changes. Called once.
  virtual void Listen(Listener* listener) = 0;
  /// Blocks until ranks 0..count-1 are all up, or the deadline.
  virtual absl::StatusOr<std::vector<NodeAddress>> WaitForWorkers(int count, absl::Time deadline) = 0;
  /// ALREADY_EXISTS when another live actor has the name.
  virtual absl::Status RegisterName(const std::string& name, const ActorAddress& actor) = 0;
  /// NOT_FOUND when nobody registers it before the deadline.
  virtual absl::StatusOr<ActorAddress> LookUpName(const std::string& name, absl::Time deadline) = 0;
  virtual absl::Status RemoveName(const std::string& name) = 0;
  /// The node may be started again this many times after it dies (default 0: its death ends the job).
  virtual absl::Status SetMaxRestarts(int32_t node, int max_restarts) = 0;
};

}  // namespace troupe::runtime
