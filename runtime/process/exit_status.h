/// How a process ended, in words.
#pragma once

#include <signal.h>

#include <cstdint>
#include <string>

namespace troupe::runtime {

/// `SIGKILL`, or `signal 64`.
std::string SignalName(int signal);

/// What waitid said, as the end of a sentence: `was killed by SIGKILL`, `exited with status 3`. When the kernel has killed
/// processes for want of memory lately, a SIGKILL is said to be perhaps one of these.
std::string DescribeExit(const siginfo_t& info, bool memory_was_short);

/// How many processes the kernel has killed for want of memory since it started; 0 when it does not say.
int64_t OutOfMemoryKills();

}  // namespace troupe::runtime
