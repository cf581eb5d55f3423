#include "actors/report/run_directory.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <system_error>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"

namespace troupe::actors {

namespace fs = std::filesystem;

namespace {

absl::Status SystemError(int error, absl::string_view doing, absl::string_view path) {
  return absl::ErrnoToStatus(error, absl::StrCat("cannot ", doing, " ", path));
}

/// N of `vN-...`, -1 when the name is no version.
int64_t VersionOf(const std::string& name) {
  int64_t version = -1;
  const size_t dash = name.find('-');
  if (name.size() < 3 || name[0] != 'v' || dash == std::string::npos) return -1;
  const std::string digits = name.substr(1, dash - 1);
  const bool number = !digits.empty() && digits.find_first_not_of("0123456789") == std::string::npos;
  return number && absl::SimpleAtoi(digits, &version) ? version : -1;
}

absl::StatusOr<int64_t> NextVersion(const std::string& output_dir) {
  int64_t next = 0;
  std::error_code error;
  for (fs::directory_iterator entry(output_dir, error), end; !error && entry != end; entry.increment(error)) {
    next = std::max(next, VersionOf(entry->path().filename().string()) + 1);
  }
  if (error) return SystemError(error.value(), "list", output_dir);
  return next;
}

}  // namespace

absl::StatusOr<RunDirectory> RunDirectory::Create(const RunDirectoryOptions& options) {
  std::error_code error;
  fs::create_directories(options.output_dir, error);
  if (error) return SystemError(error.value(), "make the folder", options.output_dir);
  if (!options.add_version) return RunDirectory(options.output_dir);

  const int folder = open(options.output_dir.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder < 0) return SystemError(errno, "open", options.output_dir);
  const absl::Cleanup close_folder = [folder] { close(folder); };
  // A file system without locks still has mkdir, which fails when another was first.
  while (flock(folder, LOCK_EX) != 0 && errno == EINTR) {
  }
  const std::string time = absl::FormatTime("%Y%m%d-%H%M%S", options.now, options.time_zone);
  for (;;) {
    TROUPE_ASSIGN_OR_RETURN(const int64_t version, NextVersion(options.output_dir));
    const std::string path = (fs::path(options.output_dir) / absl::StrCat("v", version, "-", time)).string();
    if (mkdir(path.c_str(), 0777) == 0) return RunDirectory(path);
    if (errno != EEXIST) return SystemError(errno, "make the folder", path);
  }
}

std::string RunDirectory::path(absl::string_view name) const { return (fs::path(path_) / std::string(name)).string(); }

absl::Status RunDirectory::Write(absl::string_view name, absl::string_view content) const {
  const std::string target = path(name);
  const std::string temporary = absl::StrCat(target, ".tmp.", getpid());
  const int file = open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (file < 0) return SystemError(errno, "create", temporary);
  int error = 0;
  for (absl::string_view rest = content; !rest.empty() && error == 0;) {
    const ssize_t written = write(file, rest.data(), rest.size());
    if (written >= 0) {
      rest.remove_prefix(static_cast<size_t>(written));
    } else if (errno != EINTR) {
      error = errno;
    }
  }
  if (error == 0 && fsync(file) != 0) error = errno;
  if (close(file) != 0 && error == 0) error = errno;
  if (error == 0 && rename(temporary.c_str(), target.c_str()) != 0) error = errno;
  if (error == 0) return absl::OkStatus();
  unlink(temporary.c_str());
  return SystemError(error, absl::StrCat("write ", content.size(), " bytes to"), target);
}

}  // namespace troupe::actors
