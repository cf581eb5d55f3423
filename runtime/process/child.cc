#include "runtime/process/child.h"

#include <fcntl.h>
#include <linux/close_range.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstring>

#include "runtime/base/status.h"

namespace troupe::runtime {
namespace {

constexpr int kExitCannotExecute = 127;

std::vector<char*> Pointers(const std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  for (const std::string& string : strings) pointers.push_back(const_cast<char*>(string.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

/// What went wrong in the child before its program ran.
struct Failure {
  int error = 0;
  char step[16] = {};
};

/// In the child, where only what is safe in a signal handler may be called.
[[noreturn]] void Become(const ChildSpec& spec, char* const* command, char* const* environment, pid_t parent, int report_fd,
                         int null_fd) {
  const auto fail = [report_fd](const char* step) {
    Failure failure;
    failure.error = errno;
    strncpy(failure.step, step, sizeof(failure.step) - 1);
    (void)!write(report_fd, &failure, sizeof(failure));
    _exit(kExitCannotExecute);
  };
  setpgid(0, 0);
  if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) fail("prctl");
  // A parent that died before the line above would not be noticed.
  if (getppid() != parent) _exit(kExitCannotExecute);
  if (!spec.working_directory.empty() && chdir(spec.working_directory.c_str()) != 0) fail("chdir");
  if (spec.null_stdin && dup2(null_fd, STDIN_FILENO) < 0) fail("stdin");
  if (spec.output_fd >= 0) {
    if (dup2(spec.output_fd, STDOUT_FILENO) < 0 || dup2(spec.output_fd, STDERR_FILENO) < 0) fail("stdout");
  }
  close_range(STDERR_FILENO + 1, UINT_MAX, CLOSE_RANGE_CLOEXEC);
  struct sigaction standard = {};
  standard.sa_handler = SIG_DFL;
  sigaction(SIGPIPE, &standard, nullptr);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  execve(command[0], command, environment);
  fail("execute");
  _exit(kExitCannotExecute);
}

absl::Status SystemError(absl::string_view what, int error) { return absl::ErrnoToStatus(error, what); }

}  // namespace

absl::StatusOr<Child> SpawnChild(const ChildSpec& spec) {
  const std::vector<char*> command = Pointers(spec.command);
  const std::vector<char*> environment = Pointers(spec.environment);
  int report[2];
  if (pipe2(report, O_CLOEXEC) != 0) return SystemError("pipe", errno);
  const int null_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid == 0) Become(spec, command.data(), environment.data(), parent, report[1], null_fd);
  const int fork_error = errno;
  if (null_fd >= 0) close(null_fd);
  close(report[1]);
  if (pid < 0) {
    close(report[0]);
    return SystemError("fork", fork_error);
  }
  setpgid(pid, pid);  // in both processes, so that neither runs without it
  Failure failure;
  ssize_t got;
  do {
    got = read(report[0], &failure, sizeof(failure));
  } while (got < 0 && errno == EINTR);
  close(report[0]);
  const auto reap = [pid] {
    while (waitpid(pid, nullptr, 0) < 0 && errno == EINTR) {
    }
  };
  if (got == sizeof(failure)) {
    reap();
    return SystemError(absl::StrCat("cannot ", failure.step, " ", spec.command[0]), failure.error);
  }
  Child child;
  child.pid = pid;
  child.pid_fd = static_cast<int>(syscall(SYS_pidfd_open, pid, 0));  // glibc 2.36 does not declare it for C++
  if (child.pid_fd < 0) {
    const int error = errno;
    kill(pid, SIGKILL);
    reap();
    return SystemError("pidfd_open", error);
  }
  return child;
}

}  // namespace troupe::runtime
