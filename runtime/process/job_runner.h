/// Runs one job from its first process to its last, with its output and signals: what the launcher does.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace troupe::runtime {

struct JobSpec {
  std::vector<std::string> command;  ///< the recipe's path and arguments; driver and workers run the same
  int num_workers = 1;
  std::string mesh;
};

/// Blocking until every process of the job is gone; what workers print comes on stderr with their ranks. SIGINT, SIGTERM and
/// SIGHUP ask the job to end, a second one kills it, SIGTSTP stops and continues it.
///
/// Call it before the process has other threads: signals are taken from all of them.
/// Errors  the job could not be started at all; otherwise its exit status.
absl::StatusOr<int> RunJob(const JobSpec& spec);

}  // namespace troupe::runtime
