/// One peer's connection to the coordinator: a thread of its own that sends, receives, and keeps the lease.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "runtime/control/control.pb.h"

namespace troupe::runtime::internal {

struct ConnectionOptions {
  std::string coordinator;  ///< endpoint
  std::string name;         ///< that the coordinator knows us by; another connection of the same name takes its place
  uint64_t job_epoch = 0;
  absl::Duration heartbeat = absl::Milliseconds(500);
  /// After so long a silence of a coordinator on another host, the connection is lost. On one host the kernel ends whoever
  /// depends on the coordinator's process, and one that was only stopped must be waited for.
  absl::Duration lease = absl::Seconds(3);
  absl::Duration linger = absl::Milliseconds(200);
};

/// Threads   thread-safe.
/// Lifetime  may be destroyed by one of its own callbacks.
class Connection {
 public:
  /// Told of every message that is no answer, on the connection's thread.
  using Handler = std::function<void(const control::Message&)>;
  /// Told once that the coordinator is gone, on the connection's thread.
  using LostHandler = std::function<void(const absl::Status&)>;

  /// Errors  UNAVAILABLE when the endpoint makes no sense; whether somebody listens there shows in Ask.
  static absl::StatusOr<std::unique_ptr<Connection>> Open(const ConnectionOptions& options, Handler on_message,
                                                          LostHandler on_lost);
  /// Sends what waits, then closes.
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  /// Sends without expecting an answer; never blocks.
  void Send(control::Message message);
  /// How many messages wait to be sent.
  size_t waiting() const;

  /// Sends a question and waits for its answer; an answer that is an error is returned as that error.
  ///
  /// Errors  DEADLINE_EXCEEDED when none comes in time; UNAVAILABLE when the coordinator is gone;
  ///         FAILED_PRECONDITION when called on the connection's own thread.
  absl::StatusOr<control::Answer> Ask(control::Message question, absl::Duration timeout);

  /// Runs `work` on the connection's thread and waits for it; runs it at once when called there.
  void RunAndWait(std::function<void()> work);

 private:
  class Core;
  explicit Connection(std::shared_ptr<Core> core) : core_(std::move(core)) {}
  const std::shared_ptr<Core> core_;
};

}  // namespace troupe::runtime::internal
