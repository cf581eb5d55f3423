#include "engine/io/atomic_directory.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "runtime/base/status.h"

namespace troupe::engine {
namespace fs = std::filesystem;

namespace {

absl::Status SyncPath(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return absl::UnavailableError(absl::StrCat("cannot open ", path, ": ", std::strerror(errno)));
  const int result = fsync(fd);
  const int error = errno;
  close(fd);
  if (result != 0) return absl::UnavailableError(absl::StrCat("cannot sync ", path, ": ", std::strerror(error)));
  return absl::OkStatus();
}

/// Everything below a directory, then the directory.
absl::Status SyncTree(const std::string& path) {
  std::error_code error;
  for (fs::recursive_directory_iterator it(path, error), end; !error && it != end; it.increment(error)) {
    if (it->is_regular_file() || it->is_directory()) TROUPE_RETURN_IF_ERROR(SyncPath(it->path().string()));
  }
  if (error) return absl::UnavailableError(absl::StrCat("cannot list ", path, ": ", error.message()));
  return SyncPath(path);
}

}  // namespace

absl::StatusOr<AtomicDirectory> AtomicDirectory::Create(const std::string& target) {
  std::error_code error;
  // A link is followed, and `out/` names `out`.
  fs::path path = fs::weakly_canonical(fs::absolute(target, error), error);
  if (error) return absl::InvalidArgumentError(absl::StrCat("\"", target, "\" is no directory to write: ", error.message()));
  if (path.filename().empty()) path = path.parent_path();
  if (path.filename().empty()) return absl::InvalidArgumentError(absl::StrCat("\"", target, "\" is no directory to write"));
  if (fs::exists(path, error) && !fs::is_directory(path, error)) {
    return absl::InvalidArgumentError(absl::StrCat(path.string(), " is there and is no directory"));
  }
  const fs::path hidden = path.parent_path() / absl::StrCat(".", path.filename().string(), ".", getpid(), ".partial");
  fs::remove_all(hidden, error);
  if (!fs::create_directories(hidden, error) || error) {
    return absl::UnavailableError(absl::StrCat("cannot make directory ", hidden.string(), ": ", error.message()));
  }
  return AtomicDirectory(path.string(), hidden.string());
}

AtomicDirectory::AtomicDirectory(AtomicDirectory&& other) noexcept : target_(std::move(other.target_)), path_(std::move(other.path_)) {
  other.path_.clear();
}

AtomicDirectory::~AtomicDirectory() {
  std::error_code ignored;
  if (!path_.empty()) fs::remove_all(path_, ignored);
}

absl::Status AtomicDirectory::Commit() {
  TROUPE_RETURN_IF_ERROR(SyncTree(path_));
  const auto cannot = [&] {
    return absl::UnavailableError(absl::StrCat("cannot rename ", path_, " to ", target_, ": ", std::strerror(errno)));
  };
  if (renameat2(AT_FDCWD, path_.c_str(), AT_FDCWD, target_.c_str(), RENAME_EXCHANGE) == 0) {
    // An older target was there: it has our hidden name now, and ~AtomicDirectory removes it.
  } else if (errno == ENOENT) {
    if (rename(path_.c_str(), target_.c_str()) != 0) return cannot();
    path_.clear();
  } else if (errno == EINVAL || errno == ENOSYS) {
    // A file system that cannot exchange: for a moment neither is there under its name.
    const std::string old = path_ + ".old";
    if (rename(target_.c_str(), old.c_str()) != 0 && errno != ENOENT) return cannot();
    if (rename(path_.c_str(), target_.c_str()) != 0) return cannot();
    path_ = old;
  } else {
    return cannot();
  }
  return SyncPath(fs::path(target_).parent_path().string());
}

absl::Status WriteFile(const std::string& path, const std::string& text) {
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd < 0) return absl::UnavailableError(absl::StrCat("cannot write ", path, ": ", std::strerror(errno)));
  int error = 0;
  for (size_t done = 0; done < text.size() && error == 0;) {
    const ssize_t written = write(fd, text.data() + done, text.size() - done);
    if (written >= 0) {
      done += static_cast<size_t>(written);
    } else if (errno != EINTR) {
      error = errno;
    }
  }
  // A pipe or a terminal cannot be synced.
  if (error == 0 && fsync(fd) != 0 && errno != EINVAL && errno != EROFS) error = errno;
  if (close(fd) != 0 && error == 0) error = errno;
  if (error == 0) return absl::OkStatus();
  const std::string what = absl::StrCat("cannot write ", text.size(), " bytes to ", path, ": ", std::strerror(error));
  return error == ENOSPC || error == EDQUOT ? absl::ResourceExhaustedError(what) : absl::UnavailableError(what);
}

absl::StatusOr<std::string> ReadFile(const std::string& path) {
  std::error_code error;
  if (fs::is_directory(path, error)) return absl::InvalidArgumentError(absl::StrCat(path, " is a folder, not a file"));
  std::ifstream file(path, std::ios::binary);
  if (!file) return absl::NotFoundError(absl::StrCat(path, ": ", std::strerror(errno)));
  std::ostringstream text;
  text << file.rdbuf();
  if (file.bad()) return absl::UnavailableError(absl::StrCat("cannot read ", path));
  return text.str();
}

}  // namespace troupe::engine
