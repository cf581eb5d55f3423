/// The requests of a node that have not been answered.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "runtime/actor/object_state.h"
#include "runtime/msg/message.h"

namespace troupe::runtime {

struct PendingCall {
  std::shared_ptr<ObjectState> state;
  int32_t node = -1;
  uint32_t incarnation = 0;  ///< 0 while the message waits for the node to come up
  uint64_t session = 0;
  uint64_t sequence = 0;
  bool fetch = false;                                   ///< asks for a value that was made already
  std::vector<std::shared_ptr<ObjectState>> arguments;  ///< must live until the callee has fetched them
  std::optional<Message> again;                         ///< of an idempotent method: what to send once more
  int attempts = 1;
};

/// Threads  thread-safe.
class PendingCalls {
 public:
  void Add(uint64_t request, PendingCall call);
  /// Says which incarnation a message that waited has gone to; false when nobody waits for its answer any more.
  bool SetIncarnation(uint64_t request, uint32_t incarnation);
  std::optional<PendingCall> Take(uint64_t request);
  /// Takes `request` if it went to that node.
  std::optional<PendingCall> Take(uint64_t request, int32_t node);
  std::vector<PendingCall> TakeIf(absl::FunctionRef<bool(const PendingCall&)> matches);
  size_t size() const;

 private:
  mutable std::mutex mutex_;
  std::unordered_map<uint64_t, PendingCall> calls_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace troupe::runtime
