/// Messages between the members of a group, the ground that collectives stand on.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "runtime/msg/buffer.h"

namespace troupe::runtime {

/// One member's end of a group of `size()` members that send Buffers to each other.
///
/// Messages of one sender with one tag arrive in the order they were sent; between tags and senders there is no order.
/// A member may send to itself.
/// Threads  thread-safe; two threads must not receive from the same (sender, tag) at once.
class PointToPoint {
 public:
  virtual ~PointToPoint() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;

  /// Hands `data` over; the bytes must not change any more.
  ///
  /// Errors  the reason of Revoke; UNAVAILABLE naming `to` when it is known to be dead.
  /// Never   blocks.
  virtual absl::Status Send(int to, uint64_t tag, Buffer data) = 0;

  /// The next message of `from` with `tag`; one that is already there is returned even when `deadline` has passed.
  ///
  /// Blocking until it is there, `deadline`, the death of `from`, or Revoke.
  /// Errors   DEADLINE_EXCEEDED; the reason of Revoke; UNAVAILABLE naming `from` when it is dead.
  virtual absl::StatusOr<Buffer> Receive(int from, uint64_t tag, absl::Time deadline) = 0;

  /// Makes every pending and later Send and Receive of all members fail with `why`; the first reason stays.
  ///
  /// Never  blocks.
  virtual void Revoke(const absl::Status& why) = 0;

  /// The reason of the first Revoke that reached this member, OK before.
  virtual absl::Status revoked() const = 0;
};

}  // namespace troupe::runtime
