/// Ctrl-C in a job that lives in one process.
#pragma once

#include <functional>
#include <thread>

namespace troupe::runtime {

/// While it exists, the first SIGINT runs `callback` on a thread of its own, and the second ends the process with status 130.
///
/// Lifetime  one at a time in a process: a signal handler can only reach what is global.
class InterruptWatcher {
 public:
  explicit InterruptWatcher(std::function<void()> callback);
  ~InterruptWatcher();
  InterruptWatcher(const InterruptWatcher&) = delete;
  InterruptWatcher& operator=(const InterruptWatcher&) = delete;

 private:
  int wake_fd_ = -1;
  std::thread thread_;
};

}  // namespace troupe::runtime
