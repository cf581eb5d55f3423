/// Operations that all members of a group make together: gather, scatter, sum, broadcast.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "runtime/collective/point_to_point.h"
#include "runtime/msg/buffer.h"

namespace troupe::runtime {

namespace internal {
struct Operation;
class OperationRun;
class PiecePool;
}  // namespace internal

struct CollectiveOptions {
  std::string name = "world";                   ///< of the mesh dimension, for errors
  uint64_t channel = 0;                         ///< distinct for every Collective over one PointToPoint
  absl::Duration timeout = absl::Seconds(300);  ///< of one operation
};

/// One member's side of the collective operations over some of the ranks of a PointToPoint.
///
/// Every member makes the same calls in the same order. Sums run along the fixed tree over member indices,
/// ((0+1)+(2+3))+... (that of TreeSum, runtime/mesh/microbatch_tree.h), never in order of arrival: they depend on
/// nothing but the summands.
///
/// Every message carries number, kind and size of its operation: a member that is out of step is found by whoever
/// hears it. Any error revokes the PointToPoint, so that all members get one, naming the rank and the operation:
///   all_reduce #12 (dp, 4096 bytes): rank 2 did not arrive within 30s
///
/// Threads  one thread at a time; a second thread needs a Collective with another channel.
/// Blocking until every member took part, or `timeout`.
/// Errors   DEADLINE_EXCEEDED, FAILED_PRECONDITION (out of step), UNAVAILABLE (a member died), or the reason of a
///          revoke.
class Collective {
 public:
  /// `ranks`: the members' ranks in `transport`, in the order of their index; must hold transport->rank() once.
  ///
  /// Lifetime `transport` outlives this.
  Collective(PointToPoint* transport, std::vector<int> ranks, CollectiveOptions options);
  /// All ranks.
  Collective(PointToPoint* transport, CollectiveOptions options);

  int rank() const { return index_; }
  int size() const { return static_cast<int>(ranks_.size()); }
  const std::string& name() const { return options_.name; }
  /// Operations begun so far.
  uint64_t operations() const { return next_operation_; }

  /// data of every member = data of `root`; the same size everywhere.
  absl::Status Broadcast(int root, absl::Span<std::byte> data);
  /// The buffer of `root`, whose size the others need not know; theirs is ignored.
  absl::StatusOr<Buffer> Broadcast(int root, Buffer data);

  /// recv[r * n : (r + 1) * n] = send of member r, n = send.size(). `send` may be its own place in `recv`.
  absl::Status AllGather(absl::Span<const std::byte> send, absl::Span<std::byte> recv);
  /// The buffers of all members, of any size, in the order of their index.
  absl::StatusOr<std::vector<Buffer>> AllGatherV(Buffer send);

  /// recv = sum over members of send[rank * n : (rank + 1) * n], n = recv.size(). `recv` may be its own place in
  /// `send`.
  absl::Status ReduceScatter(absl::Span<const float> send, absl::Span<float> recv);
  /// The same with counts[r] elements for member r; the same counts everywhere.
  absl::Status ReduceScatterV(absl::Span<const float> send, absl::Span<const size_t> counts, absl::Span<float> recv);

  /// data = sum over members of data.
  absl::Status AllReduce(absl::Span<float> data);
  absl::Status AllReduce(absl::Span<double> data);

  /// Result r = what member r sent to this one; sizes may differ.
  ///
  /// Checks  one buffer a member.
  absl::StatusOr<std::vector<Buffer>> AllToAll(std::vector<Buffer> send);

  /// Returns when every member has called it.
  absl::Status Barrier();

  /// Counts operations from 0 again: after a lost member was replaced, on all members, with a transport that was not
  /// revoked.
  void Restart(PointToPoint* transport);

 private:
  friend class internal::OperationRun;

  PointToPoint* transport_;
  std::vector<int> ranks_;
  CollectiveOptions options_;
  int index_ = -1;
  uint64_t next_operation_ = 0;
  std::shared_ptr<internal::PiecePool> pool_;  // of what is sent
};

}  // namespace troupe::runtime
