/// Tables for a terminal, and the one that shows which worker sits where.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/mesh/device_mesh.h"

namespace troupe::actors {

struct Table {
  std::string title;
  std::vector<std::string> columns;
  std::vector<std::vector<std::string>> rows;
};

/// Numbers are set to the right, everything else to the left; every line ends with a newline.
///
/// Checks  every row has a cell a column.
std::string FormatTable(const Table& table, bool unicode);

/// One worker of a job.
struct WorkerPlace {
  int rank = 0;
  std::string role = "trainer";
  std::string host;
  int64_t pid = 0;
  int threads = 1;
};

/// Rank, role, coordinates in the mesh, host, process and threads of every worker.
///
/// A worker whose rank is outside the mesh (of another group) has no coordinates.
Table PlacementTable(const runtime::DeviceMesh& mesh, const std::vector<WorkerPlace>& workers);

}  // namespace troupe::actors
