/// Carries messages between nodes; knows nothing of actors.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "runtime/msg/message.h"
#include "runtime/node/directory.h"

namespace troupe::runtime {

/// Messages from one node to another arrive in the order they were sent, each at most once.
///
/// Threads  thread-safe. The handler may be called by several threads at once; it must not block.
/// Never    blocks; a message that cannot be taken is an error, never dropped in silence.
class Transport {
 public:
  using Handler = std::function<void(Message)>;

  virtual ~Transport() = default;
  /// Messages are handed over from now on. Called once.
  virtual void Start(Handler handler) = 0;
  /// Errors  UNAVAILABLE when the peer is not there or the transport is closed; RESOURCE_EXHAUSTED when too much already
  ///         waits for the peer. After any error the message will not arrive.
  virtual absl::Status Send(const NodeAddress& peer, Message message) = 0;
  /// What still waits for this incarnation of the peer is thrown away.
  virtual void Disconnect(const NodeAddress& peer) = 0;
  /// Where others reach this node; empty inside a process.
  virtual std::string endpoint() const = 0;
  /// Sends what waits, for a bounded time, and stops. The handler is not called afterwards.
  virtual void Close() = 0;
};

}  // namespace troupe::runtime
