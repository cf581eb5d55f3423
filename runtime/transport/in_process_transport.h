/// Nodes inside one process: messages and their tensors move by pointer.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string>

#include "absl/base/thread_annotations.h"
#include "runtime/transport/transport.h"

namespace troupe::runtime {

/// Where the nodes of a process find each other.
///
/// Threads  thread-safe.
class InProcessHub {
 public:
  struct Endpoint {
    std::shared_mutex mutex;
    Transport::Handler handler ABSL_GUARDED_BY(mutex);
  };

  void Add(int32_t node, std::shared_ptr<Endpoint> endpoint);
  void Remove(int32_t node, const std::shared_ptr<Endpoint>& endpoint);
  std::shared_ptr<Endpoint> Find(int32_t node) const;

 private:
  mutable std::shared_mutex mutex_;
  std::map<int32_t, std::shared_ptr<Endpoint>> endpoints_ ABSL_GUARDED_BY(mutex_);
};

/// Hands a message to the receiver's handler on the sender's thread; the mailbox it ends in is the queue.
class InProcessTransport final : public Transport {
 public:
  InProcessTransport(std::shared_ptr<InProcessHub> hub, int32_t node);
  ~InProcessTransport() override;

  void Start(Handler handler) override;
  absl::Status Send(const NodeAddress& peer, Message message) override;
  void Disconnect(const NodeAddress&) override {}
  std::string endpoint() const override { return ""; }
  void Close() override;

 private:
  const std::shared_ptr<InProcessHub> hub_;
  const int32_t node_;
  const std::shared_ptr<InProcessHub::Endpoint> endpoint_ = std::make_shared<InProcessHub::Endpoint>();
};

}  // namespace troupe::runtime
