#include "runtime/process/child.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "runtime/process/exit_status.h"

namespace troupe::runtime {
namespace {

using ::testing::HasSubstr;

/// Runs a shell command to its end and returns what it printed.
std::string Output(ChildSpec spec, const std::string& command) {
  int ends[2];
  EXPECT_EQ(pipe2(ends, O_CLOEXEC), 0);
  spec.command = {"/bin/sh", "-c", command};
  spec.output_fd = ends[1];
  const auto child = SpawnChild(spec);
  EXPECT_TRUE(child.ok()) << child.status();
  close(ends[1]);
  std::string text;
  char buffer[4096];
  for (ssize_t got; (got = read(ends[0], buffer, sizeof(buffer))) > 0;) text.append(buffer, static_cast<size_t>(got));
  close(ends[0]);
  close(child->pid_fd);
  waitpid(child->pid, nullptr, 0);
  return text;
}

TEST(ChildTest, HasItsOwnGroupEnvironmentDirectoryAndNoInput) {
  ChildSpec spec;
  spec.environment = {"NAME=value"};
  spec.working_directory = "/usr";
  spec.null_stdin = true;
  EXPECT_EQ(Output(spec, "echo $NAME; pwd; cat; echo error >&2"), "value\n/usr\nerror\n");
  EXPECT_EQ(Output(spec, "test $$ = $(cut -d' ' -f5 /proc/$$/stat) && echo leader"), "leader\n");
}

TEST(ChildTest, SignalsAreAsInAFreshProcess) {
  sigset_t blocked, before;
  sigemptyset(&blocked);
  sigaddset(&blocked, SIGTERM);
  sigprocmask(SIG_BLOCK, &blocked, &before);
  EXPECT_EQ(Output({}, "grep SigBlk /proc/self/status"), "SigBlk:\t0000000000000000\n");
  sigprocmask(SIG_SETMASK, &before, nullptr);
}

TEST(ChildTest, InheritsNoOpenFiles) {
  constexpr int kFarAway = 200;  // where the shell has none of its own
  ASSERT_EQ(dup2(STDERR_FILENO, kFarAway), kFarAway);  // not close-on-exec
  EXPECT_EQ(Output({}, "test -e /proc/$$/fd/200 || echo closed"), "closed\n");
  close(kFarAway);
}

TEST(ChildTest, ProgramThatCannotRunIsAnError) {
  ChildSpec spec;
  spec.command = {"/no/such/program"};
  EXPECT_EQ(SpawnChild(spec).status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(SpawnChild(spec).status().message()), HasSubstr("cannot execute /no/such/program"));
  spec.command = {"/etc"};
  EXPECT_EQ(SpawnChild(spec).status().code(), absl::StatusCode::kPermissionDenied);
  spec.command = {"/bin/sh"};
  spec.working_directory = "/no/such/directory";
  EXPECT_THAT(std::string(SpawnChild(spec).status().message()), HasSubstr("chdir"));
}

TEST(ChildTest, DiesWithItsParent) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const pid_t parent = fork();
  if (parent == 0) {
    ChildSpec spec;
    spec.command = {"/bin/sleep", "1000"};
    const auto child = SpawnChild(spec);
    const pid_t pid = child.ok() ? child->pid : -1;
    (void)!write(ends[1], &pid, sizeof(pid));
    while (true) pause();
  }
  pid_t child = -1;
  ASSERT_EQ(read(ends[0], &child, sizeof(child)), static_cast<ssize_t>(sizeof(child)));
  close(ends[0]);
  close(ends[1]);
  ASSERT_GT(child, 0);
  const int watch = static_cast<int>(syscall(SYS_pidfd_open, child, 0));
  ASSERT_GE(watch, 0);
  kill(parent, SIGKILL);
  waitpid(parent, nullptr, 0);
  pollfd fd = {watch, POLLIN, 0};
  constexpr int kPatienceMs = 60000;
  EXPECT_EQ(poll(&fd, 1, kPatienceMs), 1);
  close(watch);
}

TEST(ExitStatusTest, SaysHowAProcessEnded) {
  siginfo_t info = {};
  info.si_code = CLD_EXITED;
  info.si_status = 3;
  EXPECT_EQ(DescribeExit(info, false), "exited with status 3");
  info.si_code = CLD_KILLED;
  info.si_status = SIGKILL;
  EXPECT_EQ(DescribeExit(info, false), "was killed by SIGKILL");
  EXPECT_THAT(DescribeExit(info, true), HasSubstr("want of memory"));
  info.si_code = CLD_DUMPED;
  info.si_status = SIGSEGV;
  EXPECT_EQ(DescribeExit(info, true), "was killed by SIGSEGV (core dumped)");
  EXPECT_EQ(SignalName(SIGRTMIN + 3), absl::StrCat("signal ", SIGRTMIN + 3));
}

}  // namespace
}  // namespace troupe::runtime
