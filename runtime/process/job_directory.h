/// A private directory that lives as long as a job: where logs lie until the recipe says where they belong.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace troupe::runtime {

/// `${TMPDIR:-/tmp}/troupe-<uid>/job-<pid>-<random>`, readable for its owner alone. Those that a killed launcher has left behind are
/// removed when the next one is made.
class JobDirectory {
 public:
  /// Errors  what the file system said; PERMISSION_DENIED when the place belongs to somebody else.
  static absl::StatusOr<std::unique_ptr<JobDirectory>> Create();
  /// The same below `parent` instead of the temporary directory.
  static absl::StatusOr<std::unique_ptr<JobDirectory>> CreateBelow(const std::string& parent);
  /// Removes it with all that is in it, unless it is kept.
  ~JobDirectory();
  JobDirectory(const JobDirectory&) = delete;
  JobDirectory& operator=(const JobDirectory&) = delete;

  const std::string& path() const { return path_; }
  /// Leaves it for people to look at, until the next job begins.
  void Keep() { keep_ = true; }

 private:
  JobDirectory() = default;
  static void RemoveStale(const std::string& home);

  std::string path_;
  int lock_fd_ = -1;  ///< held while we live: how others know
  bool keep_ = false;
};

}  // namespace troupe::runtime
