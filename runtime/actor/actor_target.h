/// What the copies of a handle share: which actor, and the session that keeps their calls in order.
#pragma once

#include <cstdint>
#include <mutex>
#include <string>

#include "absl/base/thread_annotations.h"
#include "runtime/msg/codec.h"
#include "runtime/node/directory.h"

namespace troupe::runtime {

/// An actor as it is named in messages: where it lives and what people call it.
struct ActorIdentity {
  int32_t node = -1;
  uint64_t actor = 0;
  std::string class_name;
  std::string name;
  int32_t rank = -1;
  std::string host;
  bool restartable = false;
  MSGPACK_DEFINE(node, actor, class_name, name, rank, host, restartable)

  /// `trainer[2] (rank 2, host h)`.
  std::string Describe() const { return DescribeOrigin(name, rank, host); }
};

struct ActorTarget {
  ActorTarget(ActorIdentity who, uint64_t number) : identity(std::move(who)), session(number) {}

  const ActorIdentity identity;
  const uint64_t session;
  std::mutex mutex;  ///< held from taking a number until the message is on its way, so that order is kept
  uint64_t next_sequence ABSL_GUARDED_BY(mutex) = 0;
};

}  // namespace troupe::runtime
