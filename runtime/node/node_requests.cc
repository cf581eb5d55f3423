// Node: what it asks of others, and how that fails.
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
namespace {

constexpr int kMaxAttempts = 3;  // of a call of an idempotent method

}  // namespace

std::shared_ptr<ObjectState> Node::Call(const std::shared_ptr<ActorTarget>& target, const MethodRef& method,
                                        Payload arguments, std::vector<std::shared_ptr<ObjectState>> refs,
                                        absl::Duration timeout) {
  if (timeout == absl::ZeroDuration()) timeout = options_.default_timeout;
  const absl::Time deadline = absl::Now() + timeout;
  const uint64_t request = next_request_.fetch_add(1, std::memory_order_relaxed);
  auto state = std::make_shared<ObjectState>(shared_from_this(), target, method.name, request, deadline);

  Message message;
  Envelope& envelope = message.envelope;
  envelope.kind = MessageKind::kCall;
  envelope.flags = static_cast<uint8_t>(target->identity.restartable ? kFlagRestartable : 0);
  envelope.receiver_node = target->identity.node;
  envelope.actor = target->identity.actor;
  envelope.session = target->session;
  envelope.request = request;
  envelope.method = method.id;
  envelope.timeout_nanos = absl::ToInt64Nanoseconds(timeout);
  message.body = std::move(arguments.body);
  message.frames = std::move(arguments.frames);
  if (!refs.empty()) {
    envelope.flags |= kFlagRefs;
    const std::string places = ExportRefs(refs);
    message.frames.insert(message.frames.begin(), Buffer::Copy(places.data(), places.size()));
  }

  PendingCall call;
  call.state = state;
  call.node = target->identity.node;
  call.session = target->session;
  call.arguments = std::move(refs);
  if (method.idempotent) call.again = message;
  // From here to the transport nothing may come between two calls of one handle (I-1).
  const std::lock_guard<std::mutex> lock(target->mutex);
  envelope.sequence = call.sequence = target->next_sequence++;
  SendRequest(std::move(message), std::move(call), target->identity.restartable);
  return state;
}

void Node::CallAgain(PendingCall call) {
  const std::shared_ptr<ActorTarget> target = call.state->target();
  Message message = *call.again;
  const absl::Duration left = call.state->call_deadline() - absl::Now();
  message.envelope.timeout_nanos = absl::ToInt64Nanoseconds(left);
  message.envelope.receiver_incarnation = 0;
  ++call.attempts;
  const std::lock_guard<std::mutex> lock(target->mutex);
  message.envelope.sequence = call.sequence = target->next_sequence++;
  SendRequest(std::move(message), std::move(call), target->identity.restartable);
}

std::shared_ptr<ObjectState> Node::Create(const std::shared_ptr<ActorTarget>& target, CreateRequest request,
                                          std::vector<Buffer> frames, int max_restarts, absl::Duration timeout) {
  const ActorIdentity& identity = target->identity;
  const uint64_t number = next_request_.fetch_add(1, std::memory_order_relaxed);
  auto state = std::make_shared<ObjectState>(shared_from_this(), target, "constructor", number, absl::Now() + timeout);
  Message message;
  message.envelope.kind = MessageKind::kCreate;
  message.envelope.receiver_node = identity.node;
  message.envelope.actor = identity.actor;
  message.envelope.request = number;
  message.envelope.timeout_nanos = absl::ToInt64Nanoseconds(timeout);
  message.body = EncodeValue(request).body;
  message.frames = frames;
  if (max_restarts > 0) {
    const uint32_t incarnation =
        identity.node == address().id ? address().incarnation : peers_.Incarnation(identity.node);
    const std::lock_guard<std::mutex> lock(restartables_mutex_);
    restartables_[identity.actor] = {std::move(request), std::move(frames), max_restarts, incarnation};
  }
  PendingCall call;
  call.state = state;
  call.node = identity.node;
  SendRequest(std::move(message), std::move(call), /*wait_for_node=*/false);
  state->WhenSettled([weak = weak_from_this(), actor = identity.actor, raw = state.get()] {
    const auto node = weak.lock();
    if (node == nullptr || raw->kind() != ObjectState::Kind::kFailed) return;
    const std::lock_guard<std::mutex> lock(node->restartables_mutex_);
    node->restartables_.erase(actor);
  });
  return state;
}

std::shared_ptr<ObjectState> Node::Destroy(const std::shared_ptr<ActorTarget>& target, absl::Duration timeout) {
  {
    const std::lock_guard<std::mutex> lock(restartables_mutex_);
    restartables_.erase(target->identity.actor);
  }
  const uint64_t number = next_request_.fetch_add(1, std::memory_order_relaxed);
  auto state = std::make_shared<ObjectState>(shared_from_this(), target, "destroy", number, absl::Now() + timeout);
  Message message;
  message.envelope.kind = MessageKind::kDestroy;
  message.envelope.receiver_node = target->identity.node;
  message.envelope.actor = target->identity.actor;
  message.envelope.request = number;
  PendingCall call;
  call.state = state;
  call.node = target->identity.node;
  SendRequest(std::move(message), std::move(call), /*wait_for_node=*/false);
  return state;
}

void Node::Cancel(const ActorTarget& target, uint64_t request) {
  Message message;
  message.envelope.kind = MessageKind::kCancel;
  message.envelope.receiver_node = target.identity.node;
  message.envelope.actor = target.identity.actor;
  message.envelope.request = request;
  (void)Post(std::move(message), /*wait_for_node=*/false);
}

void Node::Fetch(const std::shared_ptr<ObjectState>& state, const ObjectPlace& place) {
  Message message;
  message.envelope.kind = MessageKind::kFetch;
  message.envelope.receiver_node = place.node;
  message.envelope.receiver_incarnation = place.incarnation;
  message.envelope.actor = place.object;
  message.envelope.request = next_request_.fetch_add(1, std::memory_order_relaxed);
  PendingCall call;
  call.state = state;
  call.node = place.node;
  call.fetch = true;
  SendRequest(std::move(message), std::move(call), /*wait_for_node=*/false);
}

void Node::Release(const ObjectPlace& place) {
  Message message;
  message.envelope.kind = MessageKind::kRelease;
  message.envelope.receiver_node = place.node;
  message.envelope.receiver_incarnation = place.incarnation;
  message.envelope.actor = place.object;
  (void)Post(std::move(message), /*wait_for_node=*/false);
}

void Node::Forget(uint64_t request) { (void)pending_.Take(request); }

void Node::SendRequest(Message message, PendingCall call, bool wait_for_node) {
  const uint64_t request = message.envelope.request;
  const bool for_one_incarnation = message.envelope.receiver_incarnation != 0;
  if (!for_one_incarnation) {
    const int32_t node = message.envelope.receiver_node;
    message.envelope.receiver_incarnation = node == address().id ? address().incarnation : peers_.Incarnation(node);
  }
  call.incarnation = message.envelope.receiver_incarnation;
  pending_.Add(request, std::move(call));
  absl::Status sent;
  if (closing_) {
    sent = absl::CancelledError("the node is closed");
  } else {
    sent = Post(std::move(message), wait_for_node);
    if (!sent.ok() && wait_for_node && !for_one_incarnation && message.envelope.receiver_incarnation != 0) {
      // It died just now, but it will come back.
      message.envelope.receiver_incarnation = 0;
      if (pending_.SetIncarnation(request, 0)) sent = Post(std::move(message), wait_for_node);
    }
  }
  if (sent.ok()) return;
  std::optional<PendingCall> failed = pending_.Take(request);
  if (failed.has_value()) FailCall(*std::move(failed), sent, /*did_not_run=*/true);
}

absl::Status Node::Post(Message&& message, bool wait_for_node) {
  Envelope& envelope = message.envelope;
  envelope.job_epoch = options_.job_epoch;
  envelope.sender_node = address().id;
  envelope.sender_incarnation = address().incarnation;
  if (envelope.receiver_node == address().id) {
    if (envelope.receiver_incarnation == 0) envelope.receiver_incarnation = address().incarnation;
    for (Buffer& frame : message.frames) frame = Aligned(frame);
    OnMessage(std::move(message));
    return absl::OkStatus();
  }
  const Peers::Decision decision = peers_.Route(message, wait_for_node);
  switch (decision.fate) {
    case Peers::Fate::kParked:
      return absl::OkStatus();
    case Peers::Fate::kRefused:
      return decision.why;
    case Peers::Fate::kSend:
      break;
  }
  envelope.receiver_incarnation = decision.address->incarnation;
  return transport_->Send(*decision.address, std::move(message));
}

void Node::SendNow(const NodeAddress& node, Message message) {
  Envelope& envelope = message.envelope;
  const uint64_t request = envelope.request;
  const bool expects_reply = ExpectsReply(envelope.kind);
  if (envelope.receiver_incarnation != 0 && envelope.receiver_incarnation != node.incarnation) {
    if (!expects_reply) return;
    auto call = pending_.Take(request);
    if (call.has_value()) FailCall(*std::move(call), absl::UnavailableError("its node was started again"), true);
    return;
  }
  envelope.receiver_incarnation = node.incarnation;
  if (expects_reply && !pending_.SetIncarnation(request, node.incarnation)) return;  // its caller gave up
  const absl::Status sent = transport_->Send(node, std::move(message));
  if (sent.ok() || !expects_reply) return;
  auto call = pending_.Take(request);
  if (call.has_value()) FailCall(*std::move(call), sent, true);
}

void Node::FailCall(PendingCall call, const absl::Status& why, bool did_not_run) {
  const bool again = call.again.has_value() && call.attempts < kMaxAttempts && absl::IsUnavailable(why) &&
                     absl::Now() < call.state->call_deadline() && !closing_;
  if (again) {
    // Not here: we may be inside a call through the same handle.
    auto shared = std::make_shared<PendingCall>(std::move(call));
    Defer([weak = weak_from_this(), shared] {
      if (const auto node = weak.lock()) node->CallAgain(std::move(*shared));
    });
    return;
  }
  const std::string what = call.state->Describe();
  if (call.fetch) {
    call.state->Fail(absl::Status(why.code(), absl::StrCat("the value of ", what, " is lost: ", why.message())));
  } else if (did_not_run) {
    call.state->Fail(absl::Status(why.code(), absl::StrCat(what, ": did not run: ", why.message())));
  } else {
    call.state->Fail(OutcomeUnknown(what, why));
  }
}

}  // namespace troupe::runtime
