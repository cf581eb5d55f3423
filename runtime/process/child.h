/// Starts a process that cannot outlive its parent.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace troupe::runtime {

struct ChildSpec {
  std::vector<std::string> command;      ///< the program's path and its arguments
  std::vector<std::string> environment;  ///< all of it, as NAME=value
  std::string working_directory;         ///< empty: the parent's
  bool null_stdin = false;
  int output_fd = -1;  ///< takes stdout and stderr; -1: the parent's
};

struct Child {
  pid_t pid = -1;
  int pid_fd = -1;  ///< readable when the process has ended; the caller closes it after reaping
};

/// The child leads a process group of its own, and the kernel kills it when the calling thread ends: call this from a thread
/// that lives as long as the child may.
///
/// Blocking until the program runs, or could not be executed.
/// Errors   NOT_FOUND, PERMISSION_DENIED, ... as the kernel refused to execute the program; RESOURCE_EXHAUSTED.
absl::StatusOr<Child> SpawnChild(const ChildSpec& spec);

}  // namespace troupe::runtime
