#include "runtime/node/pending_calls.h"

#include <algorithm>
#include <utility>

namespace troupe::runtime {

void PendingCalls::Add(uint64_t request, PendingCall call) {
  const std::lock_guard<std::mutex> lock(mutex_);
  calls_.emplace(request, std::move(call));
}

bool PendingCalls::SetIncarnation(uint64_t request, uint32_t incarnation) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = calls_.find(request);
  if (found == calls_.end()) return false;
  found->second.incarnation = incarnation;
  return true;
}

std::optional<PendingCall> PendingCalls::Take(uint64_t request) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = calls_.find(request);
  if (found == calls_.end()) return std::nullopt;
  PendingCall call = std::move(found->second);
  calls_.erase(found);
  return call;
}

std::optional<PendingCall> PendingCalls::Take(uint64_t request, int32_t node) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = calls_.find(request);
  if (found == calls_.end() || found->second.node != node) return std::nullopt;
  PendingCall call = std::move(found->second);
  calls_.erase(found);
  return call;
}

std::vector<PendingCall> PendingCalls::TakeIf(absl::FunctionRef<bool(const PendingCall&)> matches) {
  std::vector<std::pair<uint64_t, PendingCall>> taken;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (auto it = calls_.begin(); it != calls_.end();) {
      if (matches(it->second)) {
        taken.emplace_back(it->first, std::move(it->second));
        it = calls_.erase(it);
      } else {
        ++it;
      }
    }
  }
  // In the order they were made: what happens next must not depend on a hash.
  std::sort(taken.begin(), taken.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<PendingCall> calls;
  for (auto& [request, call] : taken) calls.push_back(std::move(call));
  return calls;
}

size_t PendingCalls::size() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return calls_.size();
}

}  // namespace troupe::runtime
