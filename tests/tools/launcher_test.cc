/// The launcher as people meet it: real processes that end, are killed and are interrupted. This program is also the recipe that
/// it launches: with TROUPE_TEST_RECIPE in its environment it is a driver or worker and no test.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <condition_variable>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>
#include <sstream>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "runtime/control/client.h"

namespace troupe::runtime {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kRecipe[] = "TROUPE_TEST_RECIPE";
constexpr absl::Duration kPatience = absl::Seconds(60);
constexpr int kDriverGaveUp = 5;
constexpr int kInterrupted = 130;

// ---- the recipe ----

/// Keeps what it is told, for whoever waits.
class Events final : public Directory::Listener {
 public:
  void OnNodeUp(const NodeAddress& node) override { Add(absl::StrCat("up ", node.rank, " ", node.incarnation, " ", node.pid)); }
  void OnNodeDown(const NodeAddress&, const absl::Status& why) override { Add(absl::StrCat("down ", why.message())); }
  void OnShutdown(const absl::Status& why) override { Add(absl::StrCat("shutdown ", absl::StatusCodeToString(why.code()))); }

  std::string Next() {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [&] { return next_ < events_.size(); });
    return events_[next_++];
  }

 private:
  void Add(std::string event) {
    const std::lock_guard<std::mutex> lock(mutex_);
    events_.push_back(std::move(event));
    changed_.notify_all();
  }
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::string> events_;
  size_t next_ = 0;
};

void Say(const std::string& line) {
  std::printf("%s\n", line.c_str());
  std::fflush(stdout);
}

int Worker(const ProcessIdentity& identity, const std::string& mode) {
  if (mode == "print") {
    Say("worker starts");
    Say(absl::StrCat("my rank is ", identity.rank));
  }
  if (mode == "fail" && identity.rank == 1) {
    Say("about to fail");
    return 3;
  }
  const std::string build = mode == "wrong_build" && identity.rank == 1 ? "other" : "same";
  Events events;
  auto directory = ConnectDirectory(identity, build, 7, kPatience);
  if (!directory.ok()) {
    Say(std::string(directory.status().message()));
    return 4;
  }
  (*directory)->Listen(&events);
  std::string event;
  while (!absl::StartsWith(event, "shutdown") || absl::StrContains(event, "CANCELLED")) event = events.Next();
  return 0;
}

int Driver(const ProcessIdentity& identity, const std::string& mode, int argc, char** argv) {
  if (mode == "arguments") {
    for (int i = 1; i < argc; ++i) Say(absl::StrCat("argument ", argv[i]));
    return 0;
  }
  if (mode == "exit") return 7;
  if (mode == "no_hello") {
    Say("ready");
    while (true) pause();
  }
  Events events;
  auto directory = ConnectDirectory(identity, "same", 7, kPatience);
  if (!directory.ok()) {
    Say(std::string(directory.status().message()));
    return 4;
  }
  (*directory)->Listen(&events);
  if (mode == "restart" && !(*directory)->SetMaxRestarts(1, 1).ok()) return 6;
  const auto workers = (*directory)->WaitForWorkers(identity.num_workers, absl::Now() + kPatience);
  if (!workers.ok()) {
    Say(std::string(workers.status().message()));
    return kDriverGaveUp;
  }
  if (mode == "print") return 0;
  if (mode == "logs") {
    const absl::Status set = SetLogDirectory(identity, absl::StrCat(std::getenv("TROUPE_TEST_LOGS"), "/logs"), kPatience);
    Say(std::string(set.message()));
    return set.ok() ? 0 : 1;
  }
  std::string pids;
  for (const NodeAddress& worker : *workers) absl::StrAppend(&pids, " ", worker.pid);
  Say(absl::StrCat("coordinator ", identity.coordinator));
  Say(absl::StrCat("ready ", getpid(), pids));
  if (mode == "stubborn") {
    signal(SIGTERM, SIG_IGN);
    while (true) pause();
  }
  while (true) {
    const std::string event = events.Next();
    Say(absl::StrCat("heard: ", event));
    if (absl::StrContains(event, "shutdown CANCELLED")) {
      Say("saved");
      return kInterrupted;
    }
    if (mode == "wait" && absl::StartsWith(event, "down")) return kDriverGaveUp;
    if (mode == "restart" && absl::StartsWith(event, "up 0 2")) return 0;
  }
}

int RunAsRecipe(const std::string& mode, int argc, char** argv) {
  const auto identity = IdentityFromEnvironment();
  if (!identity.ok() || (mode != "local" && !identity->has_value())) return 100;
  if (mode == "local") {
    for (int i = 1; i < argc; ++i) Say(absl::StrCat("argument ", argv[i]));
    return identity->has_value() ? 1 : 0;
  }
  if ((*identity)->role == ProcessIdentity::Role::kWorker) return Worker(**identity, mode);
  return Driver(**identity, mode, argc, argv);
}

// ---- the tests ----

/// A launcher that runs: what it prints, and how it ends.
class Launcher {
 public:
  Launcher(const std::vector<std::string>& arguments, const std::map<std::string, std::string>& environment) {
    int out[2], err[2];
    EXPECT_EQ(pipe2(out, O_CLOEXEC), 0);
    EXPECT_EQ(pipe2(err, O_CLOEXEC), 0);
    std::vector<std::string> words = {absl::StrCat(TROUPE_BINARY_DIR, "/tools/launcher")};
    words.insert(words.end(), arguments.begin(), arguments.end());
    std::vector<char*> pointers;
    for (std::string& word : words) pointers.push_back(word.data());
    pointers.push_back(nullptr);
    pid_ = fork();
    if (pid_ == 0) {
      for (const auto& [name, value] : environment) setenv(name.c_str(), value.c_str(), 1);
      dup2(out[1], STDOUT_FILENO);
      dup2(err[1], STDERR_FILENO);
      execv(pointers[0], pointers.data());
      _exit(126);
    }
    close(out[1]);
    close(err[1]);
    fds_[0] = out[0];
    fds_[1] = err[0];
  }

  ~Launcher() {
    if (pid_ > 0) {
      kill(pid_, SIGKILL);
      waitpid(pid_, nullptr, 0);
    }
    for (const int fd : fds_) close(fd);
  }

  pid_t pid() const { return pid_; }
  const std::string& out() const { return text_[0]; }
  const std::string& err() const { return text_[1]; }

  /// Reads until stdout has `text`; false when both streams end, or nothing comes for too long.
  bool WaitFor(const std::string& text) {
    while (!absl::StrContains(text_[0], text) && !absl::StrContains(text_[1], text)) {
      if (!ReadSome()) return false;
    }
    return true;
  }
  /// The line of stdout that begins with `start`, without it; waits for it.
  std::string Line(const std::string& start) {
    if (!WaitFor(start)) return "";
    while (true) {
      for (const std::string& line : std::vector<std::string>(absl::StrSplit(text_[0], '\n'))) {
        // Whole lines only.
        if (absl::StartsWith(line, start) && absl::StrContains(text_[0], line + "\n")) return line.substr(start.size());
      }
      if (!ReadSome()) return "";
    }
  }

  /// Reads the rest and waits; negative when it was killed.
  int Finish() {
    while (ReadSome()) {
    }
    int status = 0;
    EXPECT_EQ(waitpid(pid_, &status, 0), pid_);
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }

 private:
  bool ReadSome() {
    pollfd fds[] = {{open_[0] ? fds_[0] : -1, POLLIN, 0}, {open_[1] ? fds_[1] : -1, POLLIN, 0}};
    if (!open_[0] && !open_[1]) return false;
    if (poll(fds, 2, static_cast<int>(absl::ToInt64Milliseconds(kPatience))) <= 0) return false;
    for (int i = 0; i < 2; ++i) {
      if (fds[i].revents == 0) continue;
      char buffer[4096];
      const ssize_t got = read(fds_[i], buffer, sizeof(buffer));
      if (got <= 0) {
        open_[i] = false;
      } else {
        text_[i].append(buffer, static_cast<size_t>(got));
      }
    }
    return true;
  }

  pid_t pid_ = -1;
  int fds_[2] = {-1, -1};
  bool open_[2] = {true, true};
  std::string text_[2];
};

/// Processes that are watched until they are gone.
class Watched {
 public:
  explicit Watched(const std::string& pids) {
    for (const absl::string_view word : absl::StrSplit(pids, ' ', absl::SkipEmpty())) {
      int pid = 0;
      EXPECT_TRUE(absl::SimpleAtoi(word, &pid)) << word;
      pids_.push_back(pid);
      fds_.push_back(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
      EXPECT_GE(fds_.back(), 0) << pid;
    }
  }
  ~Watched() {
    for (const int fd : fds_) close(fd);
  }
  const std::vector<int>& pids() const { return pids_; }
  bool AllEnd() const {
    for (const int fd : fds_) {
      pollfd watched = {fd, POLLIN, 0};
      if (poll(&watched, 1, static_cast<int>(absl::ToInt64Milliseconds(kPatience))) <= 0) return false;
    }
    return true;
  }

 private:
  std::vector<int> pids_;
  std::vector<int> fds_;
};

class LauncherTest : public ::testing::Test {
 protected:
  void SetUp() override {
    char path[] = "/tmp/launcher_test.XXXXXX";
    ASSERT_NE(mkdtemp(path), nullptr);
    directory_ = path;
    fs::create_directory(directory_ + "/tmp");
  }
  void TearDown() override { fs::remove_all(directory_); }

  std::string Self() const { return fs::read_symlink("/proc/self/exe"); }

  Launcher Launch(const std::string& mode, std::vector<std::string> flags, const std::vector<std::string>& recipe_flags = {}) {
    flags.push_back(Self());
    flags.insert(flags.end(), recipe_flags.begin(), recipe_flags.end());
    return Start(flags, mode);
  }
  Launcher Start(const std::vector<std::string>& arguments, const std::string& mode = "") {
    std::map<std::string, std::string> environment = {{"TMPDIR", directory_ + "/tmp"}, {"TROUPE_TEST_LOGS", directory_}};
    if (!mode.empty()) environment[kRecipe] = mode;
    return Launcher(arguments, environment);
  }
  /// Directories of jobs in the test's own TMPDIR.
  std::vector<std::string> JobDirectories() const {
    std::vector<std::string> found;
    std::error_code error;
    for (const auto& entry : fs::directory_iterator(absl::StrCat(directory_, "/tmp/troupe-", geteuid()), error)) {
      found.push_back(entry.path());
    }
    return found;
  }
  static bool SocketIsThere(const std::string& endpoint) {
    std::ifstream file("/proc/net/unix");
    std::stringstream text;
    text << file.rdbuf();
    return absl::StrContains(text.str(), endpoint.substr(std::string("ipc://").size()));
  }
  static std::string Read(const std::string& path) {
    std::ifstream file(path);
    std::stringstream text;
    text << file.rdbuf();
    return text.str();
  }

  std::string directory_;
};

TEST_F(LauncherTest, WithoutArgumentsItExplainsItself) {
  Launcher launcher = Start({});
  EXPECT_EQ(launcher.Finish(), 2);
  EXPECT_THAT(launcher.out(), HasSubstr("--mesh"));
}

TEST_F(LauncherTest, HelpExplainsItAndSucceeds) {
  Launcher launcher = Start({"--help"});
  EXPECT_EQ(launcher.Finish(), 0);
  EXPECT_THAT(launcher.out(), HasSubstr("launcher --mesh 2x2 recipes/sft_lora"));
}

TEST_F(LauncherTest, UnknownFlagNamesTheNearest) {
  Launcher launcher = Start({"--mehs", "2x2", "recipes/sft_lora"});
  EXPECT_EQ(launcher.Finish(), 2);
  EXPECT_THAT(launcher.err(), HasSubstr("no flag --mehs, did you mean --mesh?"));
}

TEST_F(LauncherTest, BrokenMeshIsNamed) {
  Launcher launcher = Start({"--mesh", "2y2", "recipes/sft_lora"});
  EXPECT_EQ(launcher.Finish(), 2);
  EXPECT_THAT(launcher.err(), HasSubstr("2y2"));
}

TEST_F(LauncherTest, MissingRecipeIsNamed) {
  Launcher launcher = Start({"recipes/no_such_recipe"});
  EXPECT_EQ(launcher.Finish(), 2);
  EXPECT_THAT(launcher.err(), HasSubstr("no recipe recipes/no_such_recipe"));
}

TEST_F(LauncherTest, RecipeGetsTheMeshAndItsOwnFlags) {
  Launcher launcher = Launch("arguments", {"--mesh", "2x1"}, {"--model", "M"});
  EXPECT_EQ(launcher.Finish(), 0);
  EXPECT_THAT(launcher.out(), HasSubstr("argument --mesh\nargument 2x1\nargument --model\nargument M\n"));
}

TEST_F(LauncherTest, LocalBecomesTheRecipeItself) {
  Launcher launcher = Launch("local", {"--deterministic", "--mesh", "dp=2,fsdp=2"}, {"--x"});
  EXPECT_EQ(launcher.Finish(), 0);
  EXPECT_EQ(launcher.out(), "argument --mesh\nargument dp=2,fsdp=2\nargument --deterministic\nargument --x\n");
}

TEST_F(LauncherTest, ExitStatusIsTheDriversAndNothingIsLeft) {
  Launcher launcher = Launch("exit", {"--mesh", "3"});
  EXPECT_EQ(launcher.Finish(), 7);
  EXPECT_THAT(JobDirectories(), ::testing::IsEmpty());
}

TEST_F(LauncherTest, MoreWorkersThanCoresIsAWarning) {
  Launcher launcher = Launch("print", {"--num_workers", "40"});
  EXPECT_EQ(launcher.Finish(), 0);
  EXPECT_THAT(launcher.err(), HasSubstr("warning: 40 workers share "));
}

TEST_F(LauncherTest, LinesOfWorkersCarryTheirRanksAndEqualOnesAreFolded) {
  Launcher launcher = Launch("print", {"--mesh", "3"});
  EXPECT_EQ(launcher.Finish(), 0);
  for (const int rank : {0, 1, 2}) {
    EXPECT_THAT(launcher.err(), HasSubstr(absl::StrCat("[rank ", rank, "] my rank is ", rank, "\n")));
  }
  EXPECT_THAT(launcher.err(), ::testing::ContainsRegex("\\[rank [0-9,-]+\\] worker starts"));
  EXPECT_THAT(launcher.out(), Not(HasSubstr("worker starts")));
}

TEST_F(LauncherTest, KilledWorkerEndsTheJobAndIsNamed) {
  Launcher launcher = Launch("wait", {"--mesh", "2x2"});
  const Watched processes(launcher.Line("ready "));
  ASSERT_EQ(processes.pids().size(), 5u);
  kill(processes.pids()[3], SIGKILL);  // rank 2
  EXPECT_EQ(launcher.Finish(), kDriverGaveUp);
  const std::string what = absl::StrCat("pid ", processes.pids()[3], ") was killed by SIGKILL");
  EXPECT_THAT(launcher.err(), HasSubstr(what));
  EXPECT_THAT(launcher.err(), HasSubstr("launcher: rank 2 (host "));
  EXPECT_THAT(launcher.out(), HasSubstr("heard: down rank 2 (host ")) << "the driver hears it too";
  EXPECT_TRUE(processes.AllEnd());
}

TEST_F(LauncherTest, DriverThatDoesNotEndAfterALossIsEnded) {
  Launcher launcher = Launch("stubborn", {"--mesh", "2"});
  const Watched processes(launcher.Line("ready "));
  ASSERT_EQ(processes.pids().size(), 3u);
  kill(processes.pids()[1], SIGKILL);
  EXPECT_EQ(launcher.Finish(), 1);
  EXPECT_THAT(launcher.err(), HasSubstr("rank 0 (host "));
  EXPECT_THAT(launcher.err(), HasSubstr("did not end within 1s of that, so it was killed by SIGKILL"));
  EXPECT_TRUE(processes.AllEnd());
}

TEST_F(LauncherTest, FailedWorkersLastLinesAreShown) {
  Launcher launcher = Launch("fail", {"--mesh", "2"});
  EXPECT_EQ(launcher.Finish(), kDriverGaveUp);
  EXPECT_THAT(launcher.err(), ::testing::ContainsRegex("rank 1 \\(host [^)]*\\) exited with status 3"));
  EXPECT_THAT(launcher.err(), HasSubstr("    about to fail\n"));
  EXPECT_THAT(launcher.err(), HasSubstr("the logs of all workers are in "));
  ASSERT_EQ(JobDirectories().size(), 1u);
  EXPECT_EQ(Read(JobDirectories()[0] + "/worker-1.log"), "about to fail\n");
}

TEST_F(LauncherTest, WorkerWithABudgetIsStartedAgain) {
  Launcher launcher = Launch("restart", {"--mesh", "2"});
  const Watched processes(launcher.Line("ready "));
  ASSERT_EQ(processes.pids().size(), 3u);
  kill(processes.pids()[1], SIGKILL);
  EXPECT_EQ(launcher.Finish(), 0) << launcher.err();
  EXPECT_THAT(launcher.err(), HasSubstr("was killed by SIGKILL; it is started again"));
  EXPECT_THAT(launcher.out(), HasSubstr("heard: up 0 2 "));
}

TEST_F(LauncherTest, CtrlCLetsTheDriverSaveAndExits130) {
  Launcher launcher = Launch("wait", {"--mesh", "2"});
  const Watched processes(launcher.Line("ready "));
  kill(launcher.pid(), SIGINT);
  EXPECT_EQ(launcher.Finish(), 130);
  EXPECT_THAT(launcher.out(), HasSubstr("saved"));
  EXPECT_TRUE(processes.AllEnd());
}

TEST_F(LauncherTest, CtrlCBeforeTheDriverIsConnectedReachesItAsASignal) {
  Launcher launcher = Launch("no_hello", {"--mesh", "2"});
  ASSERT_TRUE(launcher.WaitFor("ready"));
  kill(launcher.pid(), SIGINT);
  EXPECT_EQ(launcher.Finish(), 130);
}

TEST_F(LauncherTest, SecondCtrlCKills) {
  Launcher launcher = Launch("stubborn", {"--mesh", "2"});
  const Watched processes(launcher.Line("ready "));
  kill(launcher.pid(), SIGINT);
  ASSERT_TRUE(launcher.WaitFor("Ctrl-C again kills it"));
  kill(launcher.pid(), SIGINT);
  EXPECT_EQ(launcher.Finish(), 130);
  EXPECT_TRUE(processes.AllEnd());
}

TEST_F(LauncherTest, TerminateEndsLikeCtrlCWithItsOwnStatus) {
  Launcher launcher = Launch("wait", {"--mesh", "2"});
  const Watched processes(launcher.Line("ready "));
  kill(launcher.pid(), SIGTERM);
  EXPECT_EQ(launcher.Finish(), 128 + SIGTERM);
  EXPECT_THAT(launcher.out(), HasSubstr("saved"));
}

TEST_F(LauncherTest, KilledLauncherLeavesNothing) {
  Launcher launcher = Launch("wait", {"--mesh", "2x2"});
  const std::string coordinator = launcher.Line("coordinator ");
  const Watched processes(launcher.Line("ready "));
  ASSERT_EQ(processes.pids().size(), 5u);
  ASSERT_TRUE(SocketIsThere(coordinator)) << coordinator;
  kill(launcher.pid(), SIGKILL);
  EXPECT_EQ(launcher.Finish(), -SIGKILL);
  EXPECT_TRUE(processes.AllEnd());
  EXPECT_FALSE(SocketIsThere(coordinator));

  EXPECT_EQ(JobDirectories().size(), 1u);
  Launcher next = Launch("exit", {});
  EXPECT_EQ(next.Finish(), 7);
  EXPECT_THAT(JobDirectories(), ::testing::IsEmpty()) << "the next start removes the directory that was left";
}

TEST_F(LauncherTest, TwoJobsAtOnceDoNotMeet) {
  Launcher one = Launch("wait", {"--mesh", "2"});
  Launcher two = Launch("wait", {"--mesh", "2"});
  const Watched of_one(one.Line("ready "));
  const Watched of_two(two.Line("ready "));
  EXPECT_NE(one.Line("coordinator "), two.Line("coordinator "));
  ASSERT_EQ(of_one.pids().size(), 3u);
  kill(of_one.pids()[1], SIGKILL);
  EXPECT_EQ(one.Finish(), kDriverGaveUp);
  kill(two.pid(), SIGINT);
  EXPECT_EQ(two.Finish(), 130);
  EXPECT_THAT(two.out(), Not(HasSubstr("heard: down")));
}

TEST_F(LauncherTest, ProcessOfAnotherBuildIsRefused) {
  Launcher launcher = Launch("wrong_build", {"--mesh", "2"});
  // 4: the driver came last and was refused; 5: rank 1 was, and the driver gave up.
  EXPECT_THAT(launcher.Finish(), ::testing::AnyOf(4, kDriverGaveUp));
  const std::string all = launcher.out() + launcher.err();
  EXPECT_THAT(all, HasSubstr("runs build other"));
  EXPECT_THAT(all, HasSubstr("all processes of a job must run the same program"));
}

TEST_F(LauncherTest, LogsMoveToWhereTheRecipeWantsThem) {
  Launcher launcher = Launch("logs", {"--mesh", "2"});
  EXPECT_EQ(launcher.Finish(), 0) << launcher.err();
  EXPECT_TRUE(fs::exists(directory_ + "/logs/worker-0.log"));
  EXPECT_TRUE(fs::exists(directory_ + "/logs/worker-1.log"));
  EXPECT_THAT(JobDirectories(), ::testing::IsEmpty());
}

}  // namespace

/// Reached from main, outside of the tests' namespace.
int RunLauncherTestAsRecipe(const std::string& mode, int argc, char** argv) { return RunAsRecipe(mode, argc, argv); }

}  // namespace troupe::runtime

int main(int argc, char** argv) {
  if (const char* mode = std::getenv("TROUPE_TEST_RECIPE")) return troupe::runtime::RunLauncherTestAsRecipe(mode, argc, argv);
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
