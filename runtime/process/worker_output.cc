#include "runtime/process/worker_output.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include "runtime/base/log.h"
#include "runtime/base/status.h"

namespace troupe::runtime {
namespace {

absl::StatusOr<int> OpenLog(const std::string& path) {
  const int fd = open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
  if (fd < 0) return absl::ErrnoToStatus(errno, absl::StrCat("cannot open log file ", path));
  return fd;
}

std::string LogPath(const std::string& directory, int rank) { return absl::StrCat(directory, "/worker-", rank, ".log"); }

}  // namespace

absl::StatusOr<WorkerOutput> WorkerOutput::Open(int rank, const std::string& directory) {
  WorkerOutput output;
  output.rank_ = rank;
  output.path_ = LogPath(directory, rank);
  TROUPE_ASSIGN_OR_RETURN(output.log_fd_, OpenLog(output.path_));
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return absl::ErrnoToStatus(errno, "pipe");
  output.read_fd_ = ends[0];
  output.write_fd_ = ends[1];
  // Only our end: the worker's writes must wait, not fail.
  if (fcntl(output.read_fd_, F_SETFL, O_NONBLOCK) != 0) return absl::ErrnoToStatus(errno, "pipe");
  return output;
}

WorkerOutput::WorkerOutput(WorkerOutput&& other) noexcept
    : rank_(other.rank_),
      read_fd_(std::exchange(other.read_fd_, -1)),
      write_fd_(std::exchange(other.write_fd_, -1)),
      log_fd_(std::exchange(other.log_fd_, -1)),
      log_failed_(other.log_failed_),
      path_(std::move(other.path_)),
      partial_(std::move(other.partial_)),
      last_lines_(std::move(other.last_lines_)) {}

WorkerOutput::~WorkerOutput() {
  for (const int fd : {read_fd_, write_fd_, log_fd_}) {
    if (fd >= 0) close(fd);
  }
}

void WorkerOutput::CloseWriteEnd() {
  if (write_fd_ >= 0) close(std::exchange(write_fd_, -1));
}

std::vector<std::string> WorkerOutput::Read() {
  std::vector<std::string> lines;
  char buffer[1 << 16];
  size_t total = 0;
  while (read_fd_ >= 0 && total < kReadBytes) {
    const ssize_t got = read(read_fd_, buffer, sizeof(buffer));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) break;
    if (got <= 0) {
      close(std::exchange(read_fd_, -1));
      break;
    }
    const auto size = static_cast<size_t>(got);
    total += size;
    WriteLog(buffer, size);
    Split(buffer, size, &lines);
  }
  return lines;
}

std::vector<std::string> WorkerOutput::ReadRest() {
  std::vector<std::string> lines;
  // A child of the worker may still print: what is taken has a bound.
  constexpr int kMostReads = 64;
  for (int i = 0; i < kMostReads; ++i) {
    std::vector<std::string> more = Read();
    if (more.empty()) break;
    lines.insert(lines.end(), std::make_move_iterator(more.begin()), std::make_move_iterator(more.end()));
  }
  if (!partial_.empty()) AddLine(std::exchange(partial_, {}), &lines);
  return lines;
}

void WorkerOutput::Split(const char* bytes, size_t size, std::vector<std::string>* lines) {
  while (size > 0) {
    const auto* end = static_cast<const char*>(std::memchr(bytes, '\n', size));
    const size_t length = end == nullptr ? size : static_cast<size_t>(end - bytes);
    partial_.append(bytes, length);
    while (partial_.size() > kMaxLine) {
      AddLine(partial_.substr(0, kMaxLine), lines);
      partial_.erase(0, kMaxLine);
    }
    if (end == nullptr) return;
    AddLine(std::exchange(partial_, {}), lines);
    bytes = end + 1;
    size -= length + 1;
  }
}

void WorkerOutput::AddLine(std::string line, std::vector<std::string>* lines) {
  if (!line.empty() && line.back() == '\r') line.pop_back();
  last_lines_.push_back(line);
  if (last_lines_.size() > kLastLines) last_lines_.pop_front();
  lines->push_back(std::move(line));
}

void WorkerOutput::WriteLog(const char* bytes, size_t size) {
  while (size > 0 && !log_failed_) {
    const ssize_t wrote = write(log_fd_, bytes, size);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) {
      log_failed_ = true;  // a full disk must not end the job, and must not be told a thousand times
      LogError("cannot write ", path_, ": ", std::strerror(errno), "; what rank ", rank_, " prints is not kept any more");
      return;
    }
    bytes += wrote;
    size -= static_cast<size_t>(wrote);
  }
}

absl::Status WorkerOutput::MoveTo(const std::string& directory) {
  std::string path = LogPath(directory, rank_);
  if (path == path_) return absl::OkStatus();
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  if (error) return absl::UnavailableError(absl::StrCat("cannot make ", directory, ": ", error.message()));
  TROUPE_ASSIGN_OR_RETURN(const int fd, OpenLog(path));
  const int old = open(path_.c_str(), O_RDONLY | O_CLOEXEC);
  char buffer[1 << 16];
  ssize_t got;
  while (old >= 0 && (got = read(old, buffer, sizeof(buffer))) > 0) {
    if (write(fd, buffer, static_cast<size_t>(got)) != got) {
      const int write_error = errno;
      close(old);
      close(fd);
      return absl::ErrnoToStatus(write_error, absl::StrCat("cannot write ", path));
    }
  }
  if (old >= 0) close(old);
  unlink(path_.c_str());
  close(std::exchange(log_fd_, fd));
  log_failed_ = false;
  path_ = std::move(path);
  return absl::OkStatus();
}

}  // namespace troupe::runtime
