/// One ZeroMQ socket with its context, as the control plane uses them: whole messages, no exceptions.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace troupe::runtime::internal {

/// Threads  one thread at a time.
class ZmqSocket {
 public:
  enum class Kind { kRouter, kDealer };

  explicit ZmqSocket(Kind kind);
  ~ZmqSocket();
  ZmqSocket(const ZmqSocket&) = delete;
  ZmqSocket& operator=(const ZmqSocket&) = delete;

  /// The name that a router knows us by.
  void SetRoutingName(const std::string& name);
  /// How long what was sent may still travel after the end.
  void SetLinger(absl::Duration linger);

  /// Errors  UNAVAILABLE naming the endpoint.
  absl::Status Bind(const std::string& endpoint);
  absl::Status Connect(const std::string& endpoint);

  /// Never blocks.
  ///
  /// Errors  UNAVAILABLE when the peer is not there; RESOURCE_EXHAUSTED when too much waits for it.
  absl::Status Send(const std::vector<absl::string_view>& parts);
  /// False when there is none; a part longer than `max_bytes` comes as one byte more than that, cut off.
  bool Receive(std::vector<std::string>* parts, size_t max_bytes);

  /// Waits until a message may be there, `wake_fd` is readable, or `timeout` is over.
  void Wait(int wake_fd, absl::Duration timeout);

 private:
  void SetInt(int option, int value);
  void SetHeartbeats(absl::string_view endpoint);

  void* context_ = nullptr;
  void* socket_ = nullptr;
};

}  // namespace troupe::runtime::internal
