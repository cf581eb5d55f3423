/// The other nodes as this one knows them: where they are, whether they live, and what waits for them to come up.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "runtime/msg/message.h"
#include "runtime/node/directory.h"

namespace troupe::runtime {

/// Threads  thread-safe.
class Peers {
 public:
  /// What becomes of a message.
  enum class Fate { kSend, kParked, kRefused };
  struct Decision {
    Fate fate = Fate::kRefused;
    std::shared_ptr<const NodeAddress> address;  ///< kSend: where to
    absl::Status why;                            ///< kRefused
  };

  /// Decides about a message for `envelope.receiver_node`, for the incarnation that it names or, if that is 0, for the living one.
  ///
  /// A message for a node that is not up yet is kept; one for a node that is down is kept when `wait` says that it will come back.
  Decision Route(Message& message, bool wait);

  /// The living incarnation, 0 when there is none.
  uint32_t Incarnation(int32_t node) const;
  /// The newest incarnation that was ever up, 0 when none was.
  uint32_t NewestIncarnation(int32_t node) const;
  std::shared_ptr<const NodeAddress> Address(int32_t node) const;
  std::vector<std::shared_ptr<const NodeAddress>> Alive() const;
  /// Why the node is down, OK when it is not known to be.
  absl::Status DownReason(int32_t node) const;

  /// Messages are kept until FinishUp, so that those which waited go first.
  void BeginUp(const NodeAddress& address);
  /// The messages that wait; when there are none the node is up from now on.
  std::vector<Message> TakeParkedOrFinishUp(int32_t node);
  /// False when this incarnation was not up.
  bool SetDown(const NodeAddress& address, const absl::Status& why);

 private:
  enum class State { kUnknown, kComing, kUp, kDown };
  struct Peer {
    State state = State::kUnknown;
    std::shared_ptr<const NodeAddress> address;
    absl::Status why;
    std::vector<Message> parked;
  };

  mutable std::mutex mutex_;
  std::map<int32_t, Peer> peers_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace troupe::runtime
