#include "runtime/group/collect_rule.h"

#include <numeric>

namespace troupe::runtime::group_internal {

std::vector<int> SummedRanks(const DispatchRecord& record) {
  if (record.kind == Dispatch::kSliceDp) return RepresentativeRanks(record.mesh, record.kind);
  std::vector<int> ranks(static_cast<size_t>(record.mesh.size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

}  // namespace troupe::runtime::group_internal
