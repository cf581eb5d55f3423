/// What a worker prints: kept whole in its log file, and line by line for who watches.
#pragma once

#include <deque>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace troupe::runtime {

/// Threads  one thread.
class WorkerOutput {
 public:
  static constexpr size_t kLastLines = 20;
  /// Longer lines come in pieces of this size; the log file has them whole.
  static constexpr size_t kMaxLine = 8192;

  /// Makes the pipe; output is appended to `directory`/worker-`rank`.log.
  static absl::StatusOr<WorkerOutput> Open(int rank, const std::string& directory);
  ~WorkerOutput();
  WorkerOutput(WorkerOutput&& other) noexcept;
  WorkerOutput& operator=(WorkerOutput&&) = delete;

  /// The end that the worker writes to; the parent closes its copy once the worker runs.
  int write_fd() const { return write_fd_; }
  void CloseWriteEnd();
  /// Readable when there is output; -1 when everybody has closed the other end.
  int read_fd() const { return read_fd_; }

  /// Takes what is there, at most about `kReadBytes`; returns the lines that are complete now.
  std::vector<std::string> Read();
  /// Takes all that is there now, and the last line even if it has no end.
  std::vector<std::string> ReadRest();

  /// Goes on in another directory, which is made; what was written so far moves there.
  absl::Status MoveTo(const std::string& directory);

  const std::string& path() const { return path_; }
  const std::deque<std::string>& last_lines() const { return last_lines_; }

 private:
  static constexpr size_t kReadBytes = 1 << 18;

  WorkerOutput() = default;
  /// Lines of `bytes`, together with what was left before.
  void Split(const char* bytes, size_t size, std::vector<std::string>* lines);
  void AddLine(std::string line, std::vector<std::string>* lines);
  void WriteLog(const char* bytes, size_t size);

  int rank_ = 0;
  int read_fd_ = -1;
  int write_fd_ = -1;
  int log_fd_ = -1;
  bool log_failed_ = false;
  std::string path_;
  std::string partial_;
  std::deque<std::string> last_lines_;
};

}  // namespace troupe::runtime
