/// The folder that a run leaves behind.
#pragma once

#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace troupe::actors {

struct RunDirectoryOptions {
  std::string output_dir;
  /// A new folder `vN-YYYYMMDD-HHMMSS` of output_dir, N the next free number; else output_dir itself.
  bool add_version = true;
  absl::Time now = absl::Now();
  absl::TimeZone time_zone = absl::LocalTimeZone();
};

/// Two jobs that start at once get different numbers: the number is chosen under a lock on output_dir.
class RunDirectory {
 public:
  /// Errors  naming the path and what the system said.
  static absl::StatusOr<RunDirectory> Create(const RunDirectoryOptions& options);

  const std::string& path() const { return path_; }
  std::string path(absl::string_view name) const;

  /// Writes a file whole: beside it, synced, then renamed, so that a reader sees the old one or the new one.
  absl::Status Write(absl::string_view name, absl::string_view content) const;

 private:
  explicit RunDirectory(std::string path) : path_(std::move(path)) {}

  std::string path_;
};

}  // namespace troupe::actors
