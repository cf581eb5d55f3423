/// A PointToPoint between threads of one process, for tests and for collectives without nodes.
#pragma once

#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "runtime/collective/point_to_point.h"

namespace troupe::runtime {

/// `size` members whose messages move by pointer.
///
/// Threads  thread-safe.
class InMemoryGroup {
 public:
  explicit InMemoryGroup(int size);
  ~InMemoryGroup();
  InMemoryGroup(const InMemoryGroup&) = delete;
  InMemoryGroup& operator=(const InMemoryGroup&) = delete;

  int size() const;
  /// Lifetime  of the group.
  PointToPoint* member(int rank);
  /// From now on receiving from `rank` (once its messages are used up) and sending to it are UNAVAILABLE, with `why`.
  void Kill(int rank, const absl::Status& why);

 private:
  class Member;
  struct State;

  std::shared_ptr<State> state_;
  std::vector<std::unique_ptr<Member>> members_;
};

}  // namespace troupe::runtime
