/// The result of a call on a group.
#pragma once

#include <functional>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "runtime/actor/object_state.h"

namespace troupe::runtime {

/// T is what the collect rule makes of the results; void when the method returns nothing.
///
/// Threads  thread-safe.
template <typename T>
class GroupFuture {
 public:
  using Result = std::conditional_t<std::is_void_v<T>, absl::Status, absl::StatusOr<T>>;

  GroupFuture(std::vector<std::shared_ptr<ObjectState>> states, std::function<Result(absl::Duration)> get)
      : states_(std::move(states)), get_(std::move(get)) {}
  /// A call that was not made.
  explicit GroupFuture(absl::Status error)
      : get_([error = std::move(error)](absl::Duration) -> Result { return error; }) {}

  /// Fails as soon as one rank fails, with that rank's error (actor, rank, host); the calls of the others are cancelled then.
  ///
  /// Blocking until every rank has answered, one has failed, or `timeout`.
  Result Get(absl::Duration timeout) const {
    Result result = get_(timeout);
    if (!result.ok()) Cancel();
    return result;
  }

  bool Ready() const {
    for (const auto& state : states_) {
      if (state->kind() == ObjectState::Kind::kPending) return false;
    }
    return true;
  }

  void Cancel() const {
    for (const auto& state : states_) {
      if (state->kind() == ObjectState::Kind::kPending) state->Cancel();
    }
  }

  /// By rank, for Wait among the calls of several groups.
  const std::vector<std::shared_ptr<ObjectState>>& states() const { return states_; }

 private:
  std::vector<std::shared_ptr<ObjectState>> states_;
  std::function<Result(absl::Duration)> get_;
};

}  // namespace troupe::runtime
