#include "engine/io/atomic_directory.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
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

}  // namespace

absl::StatusOr<AtomicDirectory> AtomicDirectory::Create(const std::string& target) {
  const fs::path path = fs::absolute(target).lexically_normal();
  const fs::path hidden = path.parent_path() / absl::StrCat(".", path.filename().string(), ".", getpid(), ".partial");
  std::error_code error;
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
  TROUPE_RETURN_IF_ERROR(SyncPath(path_));
  std::error_code error;
  const std::string old = path_ + ".old";
  if (fs::exists(target_)) {
    fs::rename(target_, old, error);
    if (error) return absl::UnavailableError(absl::StrCat("cannot replace ", target_, ": ", error.message()));
  }
  fs::rename(path_, target_, error);
  if (error) return absl::UnavailableError(absl::StrCat("cannot rename ", path_, " to ", target_, ": ", error.message()));
  path_.clear();
  fs::remove_all(old, error);
  return SyncPath(fs::path(target_).parent_path().string());
}

absl::Status WriteFile(const std::string& path, const std::string& text) {
  {
    std::ofstream file(path, std::ios::binary | std::ios::trunc);
    file << text;
    file.flush();
    if (!file) return absl::UnavailableError(absl::StrCat("cannot write ", text.size(), " bytes to ", path, ": ", std::strerror(errno)));
  }
  return SyncPath(path);
}

absl::StatusOr<std::string> ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return absl::NotFoundError(absl::StrCat(path, ": ", std::strerror(errno)));
  std::ostringstream text;
  text << file.rdbuf();
  if (file.bad()) return absl::UnavailableError(absl::StrCat("cannot read ", path));
  return text.str();
}

}  // namespace troupe::engine
