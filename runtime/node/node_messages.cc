// Node: the messages that come, what answers them, and the objects that are handed to others.
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
                      absl::UnavailableError(absl::StrCat("refused: it was for incarnation ",
                                                          envelope.receiver_incarnation, " of node ", address().id,
                                                          ", this is incarnation ", address().incarnation)),
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
    case MessageKind::kCall:
      return HandleCall(std::move(message));
    case MessageKind::kReply:
      return HandleReply(std::move(message));
    case MessageKind::kChannel:
      return channels_.Deliver(std::move(message));
    case MessageKind::kChannelRevoke:
      return channels_.Revoke(message);
    case MessageKind::kChannelReset:
      return channels_.Reset(message.envelope.actor, message.envelope.method);
    case MessageKind::kCreate:
      return HandleCreate(std::move(message));
    case MessageKind::kDestroy:
      return HandleDestroy(message);
    case MessageKind::kFetch:
      return HandleFetch(message);
    case MessageKind::kRelease:
      return objects_.Erase(message.envelope.actor);
    case MessageKind::kLost:
      return HandleLost(message);
    case MessageKind::kIntrospect:
      return HandleIntrospect(message);
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
      case ObjectState::Kind::kPending:
        return;
      case ObjectState::Kind::kFailed:
        return node->ReplyError(envelope, state->status());
      case ObjectState::Kind::kLocal:
        return node->ReplyValue(envelope, **state->Value(absl::InfinitePast()));
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

}  // namespace troupe::runtime
