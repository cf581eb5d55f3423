#include "runtime/job/interrupt.h"

#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>

#include "runtime/base/check.h"

namespace troupe::runtime {
namespace {

constexpr int kExitInterrupted = 130;
constexpr uint64_t kInterrupt = 1;
constexpr uint64_t kStop = uint64_t{1} << 32;

std::atomic<int> signal_fd{-1};
std::atomic<int> signals_seen{0};

void OnSignal(int) {
  const int saved = errno;
  if (signals_seen.fetch_add(1) > 0) _exit(kExitInterrupted);
  const uint64_t value = kInterrupt;
  (void)!write(signal_fd.load(), &value, sizeof(value));
  errno = saved;
}

void SetHandler(void (*handler)(int)) {
  struct sigaction action = {};
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART;
  TROUPE_CHECK_EQ(sigaction(SIGINT, &action, nullptr), 0);
}

}  // namespace

InterruptWatcher::InterruptWatcher(std::function<void()> callback) {
  wake_fd_ = eventfd(0, EFD_CLOEXEC);
  TROUPE_CHECK_GE(wake_fd_, 0);
  TROUPE_CHECK_EQ(signal_fd.exchange(wake_fd_), -1) << "two jobs in one process watch for Ctrl-C";
  signals_seen = 0;
  thread_ = std::thread([fd = wake_fd_, run = std::move(callback)] {
    pthread_setname_np(pthread_self(), "troupe-sigint");
    uint64_t value = 0;
    while (read(fd, &value, sizeof(value)) == sizeof(value)) {
      if (value % kStop != 0) run();
      if (value >= kStop) return;
    }
  });
  SetHandler(&OnSignal);
}

InterruptWatcher::~InterruptWatcher() {
  SetHandler(SIG_DFL);
  const uint64_t value = kStop;
  (void)!write(wake_fd_, &value, sizeof(value));
  thread_.join();
  signal_fd = -1;
  close(wake_fd_);
}

}  // namespace troupe::runtime
