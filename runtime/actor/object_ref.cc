#include "runtime/actor/object_ref.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace troupe::runtime {
namespace {

/// Counts ends; shared with the callbacks, which may come long after the wait is over.
struct Tally {
  explicit Tally(Scheduler& scheduler) : changed(scheduler.NewWaitQueue()) {}
  std::mutex mutex;
  std::unique_ptr<WaitQueue> changed;
  size_t ended ABSL_GUARDED_BY(mutex) = 0;
  size_t failed ABSL_GUARDED_BY(mutex) = 0;
};

absl::Status Check(const std::vector<std::shared_ptr<ObjectState>>& states) {
  for (size_t i = 0; i < states.size(); ++i) {
    if (states[i] == nullptr) return absl::InvalidArgumentError(absl::StrCat("ObjectRef ", i, " was made by no call"));
  }
  return absl::OkStatus();
}

template <typename Done>
absl::Status WaitTally(const std::vector<std::shared_ptr<ObjectState>>& states, absl::Duration timeout, Done done) {
  Scheduler& scheduler = states.front()->scheduler();
  const auto tally = std::make_shared<Tally>(scheduler);
  absl::Time deadline = absl::Now() + timeout;
  for (const auto& state : states) {
    state->WhenSettled([tally, raw = state.get()] {
      const bool failed = raw->kind() == ObjectState::Kind::kFailed;
      const std::lock_guard<std::mutex> lock(tally->mutex);
      ++tally->ended;
      if (failed) ++tally->failed;
      tally->changed->NotifyAll();
    });
  }
  std::unique_lock<std::mutex> lock(tally->mutex);
  while (!done(tally->ended, tally->failed)) {
    // The first call whose own deadline comes ends then, whoever waits for it.
    absl::Time next = deadline;
    lock.unlock();
    for (const auto& state : states) {
      if (state->kind() != ObjectState::Kind::kPending) continue;
      if (state->call_deadline() <= absl::Now()) (void)state->WaitSettled(state->call_deadline());
      next = std::min(next, std::max(state->call_deadline(), absl::Now()));
    }
    lock.lock();
    if (done(tally->ended, tally->failed)) break;
    const auto what = [&] {
      std::string text = absl::StrCat("calls of ", states.size());
      for (const auto& state : states) absl::StrAppend(&text, "; ", state->Describe());
      return text;
    };
    const WaitQueue::WakeUp wake_up = tally->changed->Wait(lock, next, what);
    if (wake_up == WaitQueue::WakeUp::kDeadlock) return absl::FailedPreconditionError(scheduler.deadlock());
    if (absl::Now() >= deadline && !done(tally->ended, tally->failed)) {
      return absl::DeadlineExceededError(
          absl::StrCat(tally->ended, " of ", states.size(), " calls ended in ", absl::FormatDuration(timeout)));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<size_t>> WaitStates(const std::vector<std::shared_ptr<ObjectState>>& states, size_t count,
                                               absl::Duration timeout) {
  const absl::Status valid = Check(states);
  if (!valid.ok()) return valid;
  if (count > states.size()) {
    return absl::InvalidArgumentError(absl::StrCat("wait for ", count, " of ", states.size(), " calls"));
  }
  if (!states.empty()) {
    const absl::Status waited = WaitTally(states, timeout, [&](size_t ended, size_t) { return ended >= count; });
    if (!waited.ok() && waited.code() != absl::StatusCode::kDeadlineExceeded) return waited;
  }
  std::vector<size_t> ended;
  for (size_t i = 0; i < states.size(); ++i) {
    if (states[i]->kind() != ObjectState::Kind::kPending) ended.push_back(i);
  }
  return ended;
}

absl::Status WaitAllStates(const std::vector<std::shared_ptr<ObjectState>>& states, absl::Duration timeout) {
  const absl::Status valid = Check(states);
  if (!valid.ok() || states.empty()) return valid;
  const absl::Status waited =
      WaitTally(states, timeout, [&](size_t ended, size_t failed) { return failed > 0 || ended == states.size(); });
  if (!waited.ok()) {
    for (const auto& state : states) {
      if (state->kind() == ObjectState::Kind::kPending) {
        return absl::Status(waited.code(), absl::StrCat(state->Describe(), ": ", waited.message()));
      }
    }
    return waited;
  }
  for (const auto& state : states) {
    if (state->kind() == ObjectState::Kind::kFailed) return state->status();
  }
  return absl::OkStatus();
}

}  // namespace troupe::runtime
