/// How the engine reaches other ranks, without knowing what a process is; implemented by `actors`.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"

namespace troupe::engine {

/// Collective operations among the ranks of one mesh dimension; every rank makes the same calls in the same order.
///
/// Sums run along the fixed binary tree over ranks ((0+1)+(2+3))+..., never in order of arrival.
/// Blocking until every rank took part, or the implementation's deadline.
/// Errors   name the rank and the operation that failed; all ranks get one.
class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;

  /// recv[r * n : (r + 1) * n] = send of rank r, n = send.size() bytes.
  virtual absl::Status AllGather(absl::Span<const std::byte> send, absl::Span<std::byte> recv) = 0;
  /// recv = sum over ranks of send[rank * n : (rank + 1) * n], n = recv.size().
  virtual absl::Status ReduceScatter(absl::Span<const float> send, absl::Span<float> recv) = 0;
  /// data = sum over ranks of data.
  virtual absl::Status AllReduce(absl::Span<float> data) = 0;
};

/// The only rank there is: everything is a copy or nothing.
class SingleCommunicator final : public Communicator {
 public:
  int rank() const override { return 0; }
  int size() const override { return 1; }
  absl::Status AllGather(absl::Span<const std::byte> send, absl::Span<std::byte> recv) override;
  absl::Status ReduceScatter(absl::Span<const float> send, absl::Span<float> recv) override;
  absl::Status AllReduce(absl::Span<float> data) override;
};

}  // namespace troupe::engine
