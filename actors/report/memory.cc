#include "actors/report/memory.h"

#include <sys/resource.h>
#include <unistd.h>

#include <fstream>

namespace troupe::actors {

namespace {
constexpr double kGib = 1024.0 * 1024.0 * 1024.0;
}  // namespace

double PeakMemoryGib() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) * 1024.0 / kGib;
}

double MemoryGib() {
  std::ifstream statm("/proc/self/statm");
  double pages = 0;
  double resident = 0;
  statm >> pages >> resident;
  return statm ? resident * static_cast<double>(sysconf(_SC_PAGESIZE)) / kGib : 0;
}

}  // namespace troupe::actors
