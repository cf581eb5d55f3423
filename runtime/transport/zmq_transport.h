/// Nodes in different processes: one ROUTER receives, one DEALER a peer sends, all owned by one I/O thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "runtime/transport/transport.h"

namespace troupe::runtime {

struct ZmqTransportOptions {
  /// `ipc://@name` (an abstract socket: no file; only processes of this user may connect) or `tcp://address:port`; port `*` picks one.
  std::string endpoint;
  int32_t node = -1;
  uint32_t incarnation = 0;
  MessageLimits limits;
  size_t max_waiting_messages = 1 << 20;  ///< for one peer, before Send says RESOURCE_EXHAUSTED
  absl::Duration linger = absl::Seconds(2);
};

/// A message is [envelope][body][frame]*; frames are not copied on the way out, and at most once on the way in.
///
/// Threads  thread-safe; the handler runs on the I/O thread.
class ZmqTransport final : public Transport {
 public:
  /// Errors  UNAVAILABLE naming the endpoint that cannot be bound.
  static absl::StatusOr<std::unique_ptr<ZmqTransport>> Create(const ZmqTransportOptions& options);
  ~ZmqTransport() override;

  void Start(Handler handler) override;
  absl::Status Send(const NodeAddress& peer, Message message) override;
  void Disconnect(const NodeAddress& peer) override;
  std::string endpoint() const override { return endpoint_; }
  void Close() override;

 private:
  struct Peer;
  struct Command;
  class Loop;

  ZmqTransport() = default;
  absl::Status Push(Command command);

  std::string endpoint_;
  size_t max_waiting_messages_ = 0;
  std::unique_ptr<Loop> loop_;
  std::thread thread_;
  int wake_fd_ = -1;

  std::mutex mutex_;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  std::map<std::pair<int32_t, uint32_t>, std::shared_ptr<Peer>> peers_ ABSL_GUARDED_BY(mutex_);
  std::vector<Command> commands_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace troupe::runtime
