#include "runtime/transport/in_process_transport.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace troupe::runtime {

void InProcessHub::Add(int32_t node, std::shared_ptr<Endpoint> endpoint) {
  const std::unique_lock<std::shared_mutex> lock(mutex_);
  endpoints_[node] = std::move(endpoint);
}

void InProcessHub::Remove(int32_t node, const std::shared_ptr<Endpoint>& endpoint) {
  const std::unique_lock<std::shared_mutex> lock(mutex_);
  const auto found = endpoints_.find(node);
  if (found != endpoints_.end() && found->second == endpoint) endpoints_.erase(found);
}

std::shared_ptr<InProcessHub::Endpoint> InProcessHub::Find(int32_t node) const {
  const std::shared_lock<std::shared_mutex> lock(mutex_);
  const auto found = endpoints_.find(node);
  return found == endpoints_.end() ? nullptr : found->second;
}

InProcessTransport::InProcessTransport(std::shared_ptr<InProcessHub> hub, int32_t node)
    : hub_(std::move(hub)), node_(node) {}

InProcessTransport::~InProcessTransport() { Close(); }

void InProcessTransport::Start(Handler handler) {
  {
    const std::unique_lock<std::shared_mutex> lock(endpoint_->mutex);
    endpoint_->handler = std::move(handler);
  }
  hub_->Add(node_, endpoint_);
}

absl::Status InProcessTransport::Send(const NodeAddress& peer, Message message) {
  const auto endpoint = hub_->Find(peer.id);
  if (endpoint == nullptr) return absl::UnavailableError(absl::StrCat("node ", peer.id, " is not in this process"));
  message.envelope.body_length = message.body.size();
  message.envelope.frame_count = static_cast<uint32_t>(message.frames.size());
  Handler handler;
  {
    const std::shared_lock<std::shared_mutex> lock(endpoint->mutex);
    handler = endpoint->handler;
  }
  // Called without the lock: an answer may come back through this very endpoint before we return.
  if (!handler) return absl::UnavailableError(absl::StrCat("node ", peer.id, " is closed"));
  for (Buffer& frame : message.frames) frame = Aligned(frame);
  handler(std::move(message));
  return absl::OkStatus();
}

void InProcessTransport::Close() {
  hub_->Remove(node_, endpoint_);
  const std::unique_lock<std::shared_mutex> lock(endpoint_->mutex);
  endpoint_->handler = nullptr;
}

}  // namespace troupe::runtime
