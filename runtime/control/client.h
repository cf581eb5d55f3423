/// How a driver or worker process finds its cluster: an identity from the environment, a Directory behind the coordinator.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "runtime/node/directory.h"

namespace troupe::runtime {

/// What the agent (or launcher) told this process when it started it, through TROUPE_* environment variables.
struct ProcessIdentity {
  enum class Role { kDriver, kWorker };
  Role role = Role::kDriver;
  int32_t node = 0;
  uint32_t incarnation = 1;
  uint64_t job_epoch = 0;
  int32_t rank = -1;
  int32_t num_workers = 0;
  std::string mesh;         ///< as given to the launcher, e.g. "2x2"; empty when not given
  std::string coordinator;  ///< endpoint of the coordinator
  std::string endpoint;     ///< where this process's transport must listen
  std::string host;
  std::string job_dir;      ///< private directory of the job: logs
};

/// The variables that tell a process who it is, as `NAME=value`: what IdentityFromEnvironment reads.
std::vector<std::string> EnvironmentOf(const ProcessIdentity& identity);
/// Whether `variable` (`NAME=value`) is one of them; a process that starts a recipe by itself leaves them out.
bool IsIdentityVariable(absl::string_view variable);

/// Empty when this process was not started by a launcher or agent (local mode).
/// Errors  INVALID_ARGUMENT when the variables are there but broken.
absl::StatusOr<std::optional<ProcessIdentity>> IdentityFromEnvironment();

/// Says hello to the coordinator and keeps the lease alive from a thread of its own.
///
/// Errors  DEADLINE_EXCEEDED when the coordinator does not answer; FAILED_PRECONDITION when `build_id` or
///         `signature_hash` (over all registered actor methods) differ from the driver's.
absl::StatusOr<std::unique_ptr<Directory>> ConnectDirectory(const ProcessIdentity& identity, const std::string& build_id,
                                                            uint64_t signature_hash, absl::Duration timeout);

/// Has the workers' logs written below `directory` (made on every host where it is missing) from now on; what was logged
/// before moves there. Until this is called they lie in a temporary directory that goes with the job.
///
/// Blocking until the agents have done so, or `timeout`.
/// Errors   INVALID_ARGUMENT when the path is not absolute; what the file system said, with the host.
absl::Status SetLogDirectory(const ProcessIdentity& identity, const std::string& directory, absl::Duration timeout);

}  // namespace troupe::runtime
