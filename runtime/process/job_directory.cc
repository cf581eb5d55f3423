#include "runtime/process/job_directory.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "runtime/base/status.h"
#include "runtime/control/coordinator.h"

namespace troupe::runtime {
namespace {

constexpr mode_t kPrivate = 0700;
constexpr char kPrefix[] = "job";

/// The process that a directory was made by, 0 when the name is not one of ours.
pid_t OwnerOf(const std::string& name) {
  const std::vector<std::string> parts = absl::StrSplit(name, '-');
  pid_t pid = 0;
  const bool ours = parts.size() == 3 && parts[0] == kPrefix && absl::SimpleAtoi(parts[1], &pid);
  return ours ? pid : 0;
}

absl::Status MakePrivate(const std::string& path) {
  if (mkdir(path.c_str(), kPrivate) == 0) return absl::OkStatus();
  if (errno != EEXIST) return absl::ErrnoToStatus(errno, absl::StrCat("cannot make ", path));
  struct stat found = {};
  if (lstat(path.c_str(), &found) != 0) return absl::ErrnoToStatus(errno, path);
  // In a directory that everybody may write to, somebody else could have been here first.
  if (!S_ISDIR(found.st_mode) || found.st_uid != geteuid()) {
    return absl::PermissionDeniedError(absl::StrCat(path, " is not a directory of user ", geteuid(), ": remove it, or set TMPDIR"));
  }
  return absl::OkStatus();
}

int OpenAndLock(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (fd < 0) return -1;
  if (flock(fd, LOCK_EX | LOCK_NB) == 0) return fd;
  close(fd);
  return -1;
}

}  // namespace

absl::StatusOr<std::unique_ptr<JobDirectory>> JobDirectory::Create() {
  const char* parent = std::getenv("TMPDIR");
  return CreateBelow(parent != nullptr && parent[0] == '/' ? parent : "/tmp");
}

absl::StatusOr<std::unique_ptr<JobDirectory>> JobDirectory::CreateBelow(const std::string& parent) {
  const std::string home = absl::StrCat(parent, "/troupe-", geteuid());
  TROUPE_RETURN_IF_ERROR(MakePrivate(home));
  RemoveStale(home);
  auto directory = std::unique_ptr<JobDirectory>(new JobDirectory());
  directory->path_ = absl::StrCat(home, "/", kPrefix, "-", getpid(), "-", RandomName());
  TROUPE_RETURN_IF_ERROR(MakePrivate(directory->path_));
  directory->lock_fd_ = OpenAndLock(directory->path_);
  if (directory->lock_fd_ < 0) return absl::ErrnoToStatus(errno, absl::StrCat("cannot lock ", directory->path_));
  return directory;
}

void JobDirectory::RemoveStale(const std::string& home) {
  std::error_code error;
  std::vector<std::filesystem::path> stale;
  for (const auto& entry : std::filesystem::directory_iterator(home, error)) {
    const pid_t owner = OwnerOf(entry.path().filename());
    // One that was made just now is not locked yet, but its maker lives.
    if (owner > 0 && kill(owner, 0) != 0 && errno == ESRCH) stale.push_back(entry.path());
  }
  for (const auto& path : stale) {
    // Processes of another container share the directory, not their numbers: the lock is what counts.
    const int fd = OpenAndLock(path);
    if (fd < 0) continue;
    std::filesystem::remove_all(path, error);
    close(fd);
  }
}

JobDirectory::~JobDirectory() {
  std::error_code error;
  if (!keep_ && !path_.empty()) std::filesystem::remove_all(path_, error);
  if (lock_fd_ >= 0) close(lock_fd_);
}

}  // namespace troupe::runtime
