// Node: the other nodes that come and go.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/log.h"
#include "runtime/base/status.h"
#include "runtime/msg/codec.h"
#include "runtime/msg/error_chain.h"
#include "runtime/node/actor_cell.h"
#include "runtime/node/node.h"

namespace troupe::runtime {

void Node::OnNodeUp(const NodeAddress& node) {
  if (closing_ || node.id == address().id) return;
  const uint32_t newest = peers_.NewestIncarnation(node.id);
  if (node.incarnation <= newest) return;
  if (newest != 0 && peers_.DownReason(node.id).ok()) {
    OnNodeDown(*peers_.Address(node.id), absl::UnavailableError(absl::StrCat("node ", node.id, " was started again")));
  }
  peers_.BeginUp(node);
  MakeAgain(node);
  while (true) {
    std::vector<Message> parked = peers_.TakeParkedOrFinishUp(node.id);
    if (parked.empty()) break;
    for (Message& message : parked) SendNow(node, std::move(message));
  }
}

void Node::MakeAgain(const NodeAddress& node) {
  std::vector<Message> messages;
  {
    const std::lock_guard<std::mutex> lock(restartables_mutex_);
    for (auto it = restartables_.begin(); it != restartables_.end();) {
      auto& [actor, restartable] = *it;
      if (restartable.request.identity.node != node.id || restartable.incarnation >= node.incarnation) {
        ++it;
        continue;
      }
      if (restartable.restarts_left == 0) {
        it = restartables_.erase(it);
        continue;
      }
      --restartable.restarts_left;
      restartable.incarnation = node.incarnation;
      Message message;
      message.envelope.kind = MessageKind::kCreate;
      message.envelope.flags = kFlagRestart;
      message.envelope.job_epoch = options_.job_epoch;
      message.envelope.sender_node = address().id;
      message.envelope.sender_incarnation = address().incarnation;
      message.envelope.receiver_node = node.id;
      message.envelope.actor = actor;
      message.body = EncodeValue(restartable.request).body;
      message.frames = restartable.frames;
      messages.push_back(std::move(message));
      ++it;
    }
  }
  for (Message& message : messages) {
    const auto request = DecodeValue<CreateRequest>(message.body, DecodeContext{}, "create");
    if (!request.ok()) continue;
    const ActorIdentity identity = request->identity;
    message.envelope.request = next_request_.fetch_add(1, std::memory_order_relaxed);
    PendingCall call;
    call.node = node.id;
    call.state = std::make_shared<ObjectState>(shared_from_this(), MakeTarget(identity), "restart",
                                               message.envelope.request, absl::Now() + options_.default_timeout);
    call.state->WhenSettled([weak = weak_from_this(), identity, raw = call.state.get()] {
      if (raw->kind() == ObjectState::Kind::kFailed) {
        LogError("could not restart: ", std::string(raw->status().message()));
        return;
      }
      LogInfo("restarted ", identity.Describe());
      const auto node_alive = weak.lock();
      if (node_alive == nullptr || identity.name.empty()) return;
      node_alive->Defer([weak, identity] {
        const auto again = weak.lock();
        if (again == nullptr) return;
        // The directory may have dropped the name with the node; when it has not, the name is taken, and by us.
        (void)again->directory().RegisterName(identity.name, {identity.node, identity.actor, identity.class_name});
      });
    });
    pending_.Add(message.envelope.request, std::move(call));
    SendNow(node, std::move(message));
  }
}

void Node::OnNodeDown(const NodeAddress& node, const absl::Status& why) {
  if (closing_ || !peers_.SetDown(node, why)) return;
  transport_->Disconnect(node);
  auto lost = pending_.TakeIf([&](const PendingCall& call) {
    return call.node == node.id && call.incarnation != 0 && call.incarnation <= node.incarnation;
  });
  for (PendingCall& call : lost) FailCall(std::move(call), why, /*did_not_run=*/false);
  channels_.NodeDown(node, why);
  objects_.EraseOwnedBy({node.id, node.incarnation});
  if (node.id == 0) OnShutdown(absl::UnavailableError(absl::StrCat("the driver is gone: ", why.message())));
}

absl::Status Node::DownReason(int32_t node) const { return peers_.DownReason(node); }

void Node::RevokeChannel(const ChannelDescription& channel, uint32_t epoch, const absl::Status& why) {
  for (const ChannelMember& member : channel.members) {
    Message message;
    message.envelope.kind = MessageKind::kChannelRevoke;
    message.envelope.receiver_node = member.node;
    message.envelope.actor = channel.number;
    message.envelope.sequence = static_cast<uint32_t>(member.rank);
    message.envelope.method = epoch;
    message.body = EncodeStatus(why);
    (void)Post(std::move(message), /*wait_for_node=*/false);
  }
}

std::string Node::HostOf(int32_t node) const {
  if (node == directory_->self().id) return directory_->self().host;
  const auto known = peers_.Address(node);
  return known == nullptr ? "" : known->host;
}

void Node::ResetChannel(const ChannelDescription& channel, uint32_t epoch) {
  for (const ChannelMember& member : channel.members) {
    Message message;
    message.envelope.kind = MessageKind::kChannelReset;
    message.envelope.receiver_node = member.node;
    message.envelope.actor = channel.number;
    message.envelope.method = epoch;
    (void)Post(std::move(message), /*wait_for_node=*/true);
  }
}

void Node::OnShutdown(const absl::Status& why) {
  std::function<void(const absl::Status&)> callback;
  {
    const std::lock_guard<std::mutex> lock(shutdown_mutex_);
    callback = on_shutdown_;
    if (!callback) shutdowns_.push_back(why);
  }
  if (callback) callback(why);
}

void Node::OnShutdownDo(std::function<void(const absl::Status&)> callback) {
  std::vector<absl::Status> before;
  {
    const std::lock_guard<std::mutex> lock(shutdown_mutex_);
    on_shutdown_ = callback;
    before.swap(shutdowns_);
  }
  if (!callback) return;
  for (const absl::Status& why : before) callback(why);
}

void Node::ShutDownWorkers() {
  for (const auto& peer : peers_.Alive()) {
    Message message;
    message.envelope.kind = MessageKind::kShutdown;
    message.envelope.receiver_node = peer->id;
    message.body = EncodeStatus(absl::OkStatus());
    (void)Post(std::move(message), /*wait_for_node=*/false);
  }
}

}  // namespace troupe::runtime
