#include "runtime/process/exit_status.h"

#include <cstring>
#include <fstream>

#include "absl/strings/str_cat.h"

namespace troupe::runtime {

std::string SignalName(int signal) {
  const char* name = sigabbrev_np(signal);
  return name != nullptr ? absl::StrCat("SIG", name) : absl::StrCat("signal ", signal);
}

std::string DescribeExit(const siginfo_t& info, bool memory_was_short) {
  if (info.si_code == CLD_EXITED) return absl::StrCat("exited with status ", info.si_status);
  std::string what = absl::StrCat("was killed by ", SignalName(info.si_status));
  if (info.si_code == CLD_DUMPED) absl::StrAppend(&what, " (core dumped)");
  if (info.si_status == SIGKILL && memory_was_short) {
    absl::StrAppend(&what, " (perhaps by the kernel, which has killed processes for want of memory since the job began)");
  }
  return what;
}

int64_t OutOfMemoryKills() {
  std::ifstream file("/proc/vmstat");
  std::string name;
  int64_t value = 0;
  while (file >> name >> value) {
    if (name == "oom_kill") return value;
  }
  return 0;
}

}  // namespace troupe::runtime
