#include "runtime/node/node.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/check.h"
#include "runtime/base/log.h"
#include "runtime/base/status.h"
#include "runtime/msg/codec.h"
#include "runtime/msg/error_chain.h"
#include "runtime/node/actor_cell.h"

namespace troupe::runtime {
namespace {

constexpr int kMaxAttempts = 3;  // of a call of an idempotent method

bool ExpectsReply(MessageKind kind) {
  switch (kind) {
    case MessageKind::kCreate:
    case MessageKind::kCall:
    case MessageKind::kDestroy:
    case MessageKind::kFetch:
    case MessageKind::kIntrospect: return true;
    default: return false;
  }
}

}  // namespace

std::shared_ptr<Node> Node::Start(std::shared_ptr<Directory> directory, std::shared_ptr<Scheduler> scheduler,
                                  std::unique_ptr<Transport> transport, NodeOptions options) {
  auto node =
      std::shared_ptr<Node>(new Node(std::move(directory), std::move(scheduler), std::move(transport), options));
  node->transport_->Start([weak = std::weak_ptr<Node>(node)](Message message) {
    if (const auto alive = weak.lock()) alive->OnMessage(std::move(message));
  });
  node->directory_->Listen(node.get());
  return node;
}

Node::Node(std::shared_ptr<Directory> directory, std::shared_ptr<Scheduler> scheduler,
           std::unique_ptr<Transport> transport, NodeOptions options)
    : directory_(std::move(directory)),
      scheduler_(std::move(scheduler)),
      transport_(std::move(transport)),
      options_(options),
      channels_(scheduler_.get()),
      deferred_changed_(scheduler_->NewWaitQueue()) {}

Node::~Node() {
  TROUPE_CHECK(closing_) << "a node went without Close";
  directory_.reset();  // its thread may still be telling us something
}

uint64_t Node::NewNumber() {
  const auto node = static_cast<uint64_t>(static_cast<uint16_t>(address().id + 1));
  const auto incarnation = static_cast<uint64_t>(static_cast<uint16_t>(address().incarnation));
  return (node << 48) | (incarnation << 32) | next_number_.fetch_add(1, std::memory_order_relaxed);
}

std::shared_ptr<ActorTarget> Node::MakeTarget(ActorIdentity identity) {
  return std::make_shared<ActorTarget>(std::move(identity), NewNumber());
}

// ---- requests ----

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
    const uint32_t incarnation = identity.node == address().id ? address().incarnation : peers_.Incarnation(identity.node);
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
    message.envelope.receiver_incarnation =
        node == address().id ? address().incarnation : peers_.Incarnation(node);
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
    case Peers::Fate::kParked: return absl::OkStatus();
    case Peers::Fate::kRefused: return decision.why;
    case Peers::Fate::kSend: break;
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

// ---- what is handed to others ----

std::string Node::ExportRefs(const std::vector<std::shared_ptr<ObjectState>>& refs) {
  std::vector<ObjectPlace> places;
  for (const auto& ref : refs) {
    uint64_t number = 0;
    {
      const std::lock_guard<std::mutex> lock(exports_mutex_);
      number = ref->exported();
      if (number == 0) {
        number = NewNumber();
        ref->set_exported(number);
        exports_[number] = ref;
      }
    }
    places.push_back({address().id, address().incarnation, number});
  }
  return EncodeValue(places).body;
}

void Node::Unexport(uint64_t number) {
  const std::lock_guard<std::mutex> lock(exports_mutex_);
  exports_.erase(number);
}

std::vector<std::shared_ptr<ObjectState>> Node::AdoptRefs(Message& message, absl::Time deadline, absl::Status* status) {
  std::vector<std::shared_ptr<ObjectState>> refs;
  if ((message.envelope.flags & kFlagRefs) == 0) return refs;
  if (message.frames.empty()) {
    *status = absl::InvalidArgumentError("message: references are announced, none came");
    return refs;
  }
  const std::string bytes(reinterpret_cast<const char*>(message.frames[0].data()), message.frames[0].size());
  const auto places = DecodeValue<std::vector<ObjectPlace>>(bytes, DecodeContext{}, "references");
  if (!places.ok()) {
    *status = places.status();
    return refs;
  }
  message.frames.erase(message.frames.begin());
  for (const ObjectPlace& place : *places) {
    auto state = std::make_shared<ObjectState>(shared_from_this(), nullptr, "an argument", 0, deadline);
    state->SetRemote(place, /*owned=*/false);
    state->StartFetch();  // while the calls before it still run
    refs.push_back(std::move(state));
  }
  return refs;
}

void Node::ReplyError(const Envelope& request, const absl::Status& status, bool refused) {
  Message reply;
  reply.envelope.kind = MessageKind::kReply;
  reply.envelope.flags = static_cast<uint8_t>(kFlagError | (refused ? kFlagRefused : 0));
  reply.envelope.receiver_node = request.sender_node;
  reply.envelope.receiver_incarnation = request.sender_incarnation;
  reply.envelope.request = request.request;
  reply.envelope.trace_id = request.trace_id;
  reply.body = EncodeStatus(status);
  (void)Post(std::move(reply), /*wait_for_node=*/false);
}

void Node::ReplyValue(const Envelope& request, Payload payload) {
  Message reply;
  reply.envelope.kind = MessageKind::kReply;
  reply.envelope.receiver_node = request.sender_node;
  reply.envelope.receiver_incarnation = request.sender_incarnation;
  reply.envelope.request = request.request;
  reply.envelope.trace_id = request.trace_id;
  const bool to_another = request.sender_node != address().id;
  if (request.kind == MessageKind::kCall && to_another && payload.bytes() > options_.inline_bytes) {
    const ObjectPlace place{address().id, address().incarnation, NewNumber()};
    objects_.Put(place.object, {request.sender_node, request.sender_incarnation}, std::move(payload));
    reply.envelope.flags = kFlagRemote;
    reply.body = EncodeValue(place).body;
    const absl::Status sent = Post(std::move(reply), /*wait_for_node=*/false);
    if (!sent.ok()) objects_.Erase(place.object);
    return;
  }
  reply.body = std::move(payload.body);
  reply.frames = std::move(payload.frames);
  (void)Post(std::move(reply), /*wait_for_node=*/false);
}

// ---- messages that come ----

void Node::OnMessage(Message message) {
  const Envelope& envelope = message.envelope;
  if (envelope.job_epoch != options_.job_epoch) {
    LogWarning("node ", address().id, ": a ", MessageKindName(envelope.kind), " of another job was refused");
    return;
  }
  if (envelope.receiver_node != address().id) {
    LogWarning("node ", address().id, ": a ", MessageKindName(envelope.kind), " for node ", envelope.receiver_node,
               " was refused");
    return;
  }
  if (envelope.receiver_incarnation != address().incarnation) {
    if (!ExpectsReply(envelope.kind)) return;
    return ReplyError(envelope,
                      absl::UnavailableError(absl::StrCat("refused: it was for incarnation ", envelope.receiver_incarnation,
                                                          " of node ", address().id, ", this is incarnation ",
                                                          address().incarnation)),
                      /*refused=*/true);
  }
  if (envelope.sender_node != address().id &&
      envelope.sender_incarnation < peers_.NewestIncarnation(envelope.sender_node)) {
    return;  // its sender is dead, nobody waits for an answer
  }
  Handle(std::move(message));
}

void Node::Handle(Message message) {
  switch (message.envelope.kind) {
    case MessageKind::kCall: return HandleCall(std::move(message));
    case MessageKind::kReply: return HandleReply(std::move(message));
    case MessageKind::kChannel: return channels_.Deliver(std::move(message));
    case MessageKind::kChannelRevoke: return channels_.Revoke(message);
    case MessageKind::kChannelReset: return channels_.Reset(message.envelope.actor, message.envelope.method);
    case MessageKind::kCreate: return HandleCreate(std::move(message));
    case MessageKind::kDestroy: return HandleDestroy(message);
    case MessageKind::kFetch: return HandleFetch(message);
    case MessageKind::kRelease: return objects_.Erase(message.envelope.actor);
    case MessageKind::kLost: return HandleLost(message);
    case MessageKind::kIntrospect: return HandleIntrospect(message);
    case MessageKind::kCancel: {
      const auto actor = FindActor(message.envelope.actor);
      if (actor != nullptr) actor->Cancel(message.envelope);
      return;
    }
    case MessageKind::kShutdown: {
      absl::Status why;
      if (!DecodeStatus(message.body, &why).ok()) why = absl::UnknownError("shutdown for an unreadable reason");
      return OnShutdown(why);
    }
  }
}

std::shared_ptr<ActorCell> Node::FindActor(uint64_t actor) {
  const std::shared_lock<std::shared_mutex> lock(actors_mutex_);
  const auto found = actors_.find(actor);
  return found == actors_.end() ? nullptr : found->second;
}

void Node::HandleCreate(Message message) {
  const Envelope envelope = message.envelope;
  absl::StatusOr<CreateRequest> request = DecodeValue<CreateRequest>(message.body, DecodeContext{}, "create");
  if (!request.ok()) return ReplyError(envelope, request.status(), true);
  if (closing_) return ReplyError(envelope, absl::UnavailableError("the node is closed"), true);
  const uint64_t number = request->identity.actor;
  if (FindActor(number) != nullptr) {
    return ReplyError(envelope, absl::AlreadyExistsError(absl::StrCat("actor ", number, " is there already")), true);
  }
  auto cell = std::make_shared<ActorCell>(shared_from_this(), *std::move(request), std::move(message));
  cell->Start();
  // Calls that came early go first; until they are in, more of them wait, so that their order is kept.
  while (true) {
    std::vector<Message> early;
    {
      const std::unique_lock<std::shared_mutex> lock(actors_mutex_);
      const auto found = early_calls_.find(number);
      if (found == early_calls_.end() || found->second.empty()) {
        if (found != early_calls_.end()) early_calls_.erase(found);
        actors_[number] = cell;
        break;
      }
      early.swap(found->second);
    }
    for (Message& call : early) {
      const absl::Time deadline = absl::Now() + absl::Nanoseconds(call.envelope.timeout_nanos);
      absl::Status adopted;
      auto refs = AdoptRefs(call, deadline, &adopted);
      if (adopted.ok()) cell->Push(std::move(call), std::move(refs), deadline);
    }
  }
  // Close may have gone through the actors before this one was among them.
  if (closing_) cell->Stop(absl::CancelledError("the node is closed"), std::nullopt);
}

void Node::HandleCall(Message message) {
  const Envelope envelope = message.envelope;
  const auto cell = FindActor(envelope.actor);
  if (cell != nullptr) {
    const absl::Time deadline = absl::Now() + absl::Nanoseconds(envelope.timeout_nanos);
    absl::Status adopted;
    auto refs = AdoptRefs(message, deadline, &adopted);
    if (!adopted.ok()) return ReplyError(envelope, adopted, true);
    return cell->Push(std::move(message), std::move(refs), deadline);
  }
  const bool may_come = (envelope.flags & kFlagRestartable) != 0 && address().incarnation > 1 && !closing_;
  if (may_come) {
    std::unique_lock<std::shared_mutex> lock(actors_mutex_);
    if (actors_.contains(envelope.actor)) {
      lock.unlock();
      return HandleCall(std::move(message));
    }
    early_calls_[envelope.actor].push_back(std::move(message));
    return;
  }
  ReplyError(envelope, absl::NotFoundError(absl::StrCat("no actor ", envelope.actor, " on node ", address().id)), true);
}

void Node::HandleDestroy(const Message& message) {
  std::shared_ptr<ActorCell> cell;
  {
    const std::unique_lock<std::shared_mutex> lock(actors_mutex_);
    const auto found = actors_.find(message.envelope.actor);
    if (found != actors_.end()) {
      cell = std::move(found->second);
      actors_.erase(found);
    }
  }
  if (cell == nullptr) {
    const std::string what = absl::StrCat("no actor ", message.envelope.actor, " on node ", address().id);
    return ReplyError(message.envelope, absl::NotFoundError(what), true);
  }
  cell->Stop(absl::CancelledError(absl::StrCat(cell->identity().Describe(), ": the actor was destroyed")),
             message.envelope);
}

void Node::HandleReply(Message message) {
  const Envelope& envelope = message.envelope;
  std::optional<PendingCall> call = pending_.Take(envelope.request, envelope.sender_node);
  ObjectPlace place;
  if ((envelope.flags & kFlagRemote) != 0) {
    const auto parsed = DecodeValue<ObjectPlace>(message.body, DecodeContext{}, "place of a value");
    if (!parsed.ok()) {
      if (call.has_value()) call->state->Fail(parsed.status());
      return;
    }
    place = *parsed;
    // Its caller gave up, so nobody else will say that the value may go.
    if (!call.has_value()) return Release(place);
  }
  if (!call.has_value()) return;
  if ((envelope.flags & kFlagError) != 0) {
    absl::Status status;
    const absl::Status parsed = DecodeStatus(message.body, &status);
    if (!parsed.ok() || status.ok()) status = absl::InternalError("an error that cannot be read");
    if ((envelope.flags & kFlagRefused) != 0 || (call->fetch && ErrorChain(status).empty())) {
      return FailCall(*std::move(call), status, /*did_not_run=*/true);
    }
    call->state->Fail(ErrorChain(status).empty() ? Annotate(status, call->state->Describe()) : status);
  } else if ((envelope.flags & kFlagRemote) != 0) {
    call->state->SetRemote(place, /*owned=*/!call->fetch);
    if (call->fetch) call->state->StartFetch();  // it lies one node further
  } else {
    call->state->SetLocal({std::move(message.body), std::move(message.frames)});
  }
}

void Node::HandleFetch(const Message& message) {
  const Envelope& envelope = message.envelope;
  if (const auto payload = objects_.Find(envelope.actor)) return ReplyValue(envelope, *payload);
  std::shared_ptr<ObjectState> state;
  {
    const std::lock_guard<std::mutex> lock(exports_mutex_);
    const auto found = exports_.find(envelope.actor);
    if (found != exports_.end()) state = found->second.lock();
  }
  if (state == nullptr) {
    return ReplyError(envelope, absl::NotFoundError(absl::StrCat("node ", address().id, " does not hold it any more")));
  }
  state->WhenSettled([weak = weak_from_this(), state, envelope] {
    const auto node = weak.lock();
    if (node == nullptr) return;
    switch (state->kind()) {
      case ObjectState::Kind::kPending: return;
      case ObjectState::Kind::kFailed: return node->ReplyError(envelope, state->status());
      case ObjectState::Kind::kLocal: return node->ReplyValue(envelope, **state->Value(absl::InfinitePast()));
      case ObjectState::Kind::kRemote: {
        Message reply;
        reply.envelope.kind = MessageKind::kReply;
        reply.envelope.flags = kFlagRemote;
        reply.envelope.receiver_node = envelope.sender_node;
        reply.envelope.receiver_incarnation = envelope.sender_incarnation;
        reply.envelope.request = envelope.request;
        reply.body = EncodeValue(state->place()).body;
        (void)node->Post(std::move(reply), /*wait_for_node=*/false);
        return;
      }
    }
  });
}

void Node::HandleLost(const Message& message) {
  const Envelope& envelope = message.envelope;
  auto lost = pending_.TakeIf([&](const PendingCall& call) {
    return !call.fetch && call.session == envelope.session && call.node == envelope.sender_node &&
           call.sequence >= envelope.sequence && call.sequence < envelope.request;
  });
  for (PendingCall& call : lost) {
    FailCall(std::move(call), absl::UnavailableError("the message was lost on its way"), /*did_not_run=*/false);
  }
}

void Node::HandleIntrospect(const Message& message) {
  if (message.envelope.actor == 0) return ReplyValue(message.envelope, EncodeValue(Report()));
  const auto cell = FindActor(message.envelope.actor);
  if (cell != nullptr) return ReplyValue(message.envelope, EncodeValue(cell->identity()));
  const std::string what = absl::StrCat("no actor ", message.envelope.actor, " on node ", address().id);
  ReplyError(message.envelope, absl::NotFoundError(what));
}

// ---- nodes that come and go ----

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

// ---- questions ----

absl::StatusOr<ActorIdentity> Node::LookUp(const std::string& name, absl::Duration timeout) {
  const absl::Time deadline = absl::Now() + timeout;
  TROUPE_ASSIGN_OR_RETURN(const ActorAddress found, directory_->LookUpName(name, deadline));
  const uint64_t number = next_request_.fetch_add(1, std::memory_order_relaxed);
  auto state = std::make_shared<ObjectState>(shared_from_this(), nullptr, "look up", number, deadline);
  Message message;
  message.envelope.kind = MessageKind::kIntrospect;
  message.envelope.receiver_node = found.node;
  message.envelope.actor = found.actor;
  message.envelope.request = number;
  PendingCall call;
  call.state = state;
  call.node = found.node;
  SendRequest(std::move(message), std::move(call), /*wait_for_node=*/false);
  TROUPE_ASSIGN_OR_RETURN(const Payload* payload, state->Value(deadline));
  return DecodeValue<ActorIdentity>(*payload, this, name);
}

NodeReport Node::Report() {
  NodeReport report;
  report.node = address().id;
  report.incarnation = address().incarnation;
  report.rank = address().rank;
  report.host = address().host;
  report.pid = getpid();
  report.objects = objects_.count();
  report.object_bytes = objects_.bytes();
  report.calls_pending = pending_.size();
  std::vector<std::shared_ptr<ActorCell>> cells;
  {
    const std::shared_lock<std::shared_mutex> lock(actors_mutex_);
    for (const auto& [number, cell] : actors_) cells.push_back(cell);
  }
  for (const auto& cell : cells) report.actors.push_back(cell->Report());
  std::sort(report.actors.begin(), report.actors.end(), [](const auto& a, const auto& b) { return a.actor < b.actor; });
  for (TaskReport& task : scheduler_->Report()) {
    if (task.waits_for.empty()) continue;
    report.waits.push_back({task.name, task.waits_for, absl::ToDoubleSeconds(absl::Now() - task.since)});
  }
  return report;
}

absl::StatusOr<NodeReport> Node::ReportOf(int32_t node, absl::Duration timeout) {
  if (node == address().id) return Report();
  const absl::Time deadline = absl::Now() + timeout;
  const uint64_t number = next_request_.fetch_add(1, std::memory_order_relaxed);
  auto state = std::make_shared<ObjectState>(shared_from_this(), nullptr, "report", number, deadline);
  Message message;
  message.envelope.kind = MessageKind::kIntrospect;
  message.envelope.receiver_node = node;
  message.envelope.request = number;
  PendingCall call;
  call.state = state;
  call.node = node;
  SendRequest(std::move(message), std::move(call), /*wait_for_node=*/false);
  TROUPE_ASSIGN_OR_RETURN(const Payload* payload, state->Value(deadline));
  return DecodeValue<NodeReport>(*payload, this, "report");
}

// ---- jobs of the node itself ----

void Node::Defer(std::function<void()> job) {
  const std::lock_guard<std::mutex> lock(deferred_mutex_);
  if (deferred_stop_) return;
  deferred_.push_back(std::move(job));
  if (deferred_task_ == nullptr) {
    deferred_task_ = scheduler_->Start(absl::StrCat("node", address().id), [self = shared_from_this()] {
      self->RunDeferred();
    });
  }
  deferred_changed_->NotifyAll();
}

void Node::RunDeferred() {
  std::unique_lock<std::mutex> lock(deferred_mutex_);
  while (true) {
    while (deferred_.empty() && !deferred_stop_) deferred_changed_->WaitIdle(lock);
    if (deferred_stop_) return;
    const std::function<void()> job = std::move(deferred_.front());
    deferred_.pop_front();
    lock.unlock();
    job();
    lock.lock();
  }
}

absl::Status Node::Close(absl::Duration timeout) {
  if (closing_.exchange(true)) return absl::OkStatus();
  const absl::Time deadline = absl::Now() + timeout;
  const absl::Status why = absl::CancelledError("the node is closed");
  std::vector<std::shared_ptr<ActorCell>> cells;
  {
    const std::unique_lock<std::shared_mutex> lock(actors_mutex_);
    for (const auto& [number, cell] : actors_) cells.push_back(cell);
    actors_.clear();
    early_calls_.clear();
  }
  std::sort(cells.begin(), cells.end(),
            [](const auto& a, const auto& b) { return a->identity().actor < b->identity().actor; });
  for (const auto& cell : cells) cell->Stop(why, std::nullopt);
  channels_.RevokeAll(why);
  for (PendingCall& call : pending_.TakeIf([](const PendingCall&) { return true; })) {
    FailCall(std::move(call), why, /*did_not_run=*/false);
  }
  absl::Status status;
  for (const auto& cell : cells) {
    if (cell->Join(deadline)) continue;
    const ActorReport report = cell->Report();
    status = absl::DeadlineExceededError(
        absl::StrCat(cell->identity().Describe(), ": ", report.method, " did not end within ", absl::FormatDuration(timeout)));
    LogError(std::string(status.message()));
  }
  std::shared_ptr<Task> deferred;
  {
    const std::lock_guard<std::mutex> lock(deferred_mutex_);
    deferred_stop_ = true;
    deferred_changed_->NotifyAll();
    deferred = deferred_task_;
  }
  if (deferred != nullptr && !deferred->Join(deadline) && status.ok()) {
    status = absl::DeadlineExceededError(absl::StrCat("node ", address().id, ": its own task did not end"));
  }
  transport_->Close();
  return status;
}

}  // namespace troupe::runtime
