/// What a node tells about itself when it is asked.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/msg/codec.h"

namespace troupe::runtime {

struct ActorReport {
  uint64_t actor = 0;
  std::string class_name;
  std::string name;
  int32_t rank = -1;
  uint64_t queued = 0;
  uint64_t calls_done = 0;
  uint64_t duplicates_dropped = 0;
  std::string method;  ///< that runs now; empty when none does
  double running_seconds = 0;
  MSGPACK_DEFINE(actor, class_name, name, rank, queued, calls_done, duplicates_dropped, method, running_seconds)
};

struct WaitReport {
  std::string task;
  std::string waits_for;
  double seconds = 0;
  MSGPACK_DEFINE(task, waits_for, seconds)
};

struct NodeReport {
  int32_t node = -1;
  uint32_t incarnation = 0;
  int32_t rank = -1;
  std::string host;
  int64_t pid = 0;
  uint64_t objects = 0;
  uint64_t object_bytes = 0;
  uint64_t calls_pending = 0;
  std::vector<ActorReport> actors;
  std::vector<WaitReport> waits;  ///< of all tasks of the process
  MSGPACK_DEFINE(node, incarnation, rank, host, pid, objects, object_bytes, calls_pending, actors, waits)
};

}  // namespace troupe::runtime
