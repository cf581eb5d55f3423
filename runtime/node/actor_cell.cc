#include "runtime/node/actor_cell.h"

#include <exception>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"
#include "runtime/msg/error_chain.h"

namespace troupe::runtime {
namespace {

constexpr char kConstructor[] = "constructor";
constexpr char kRestore[] = "restore";

}  // namespace

ActorCell::ActorCell(std::shared_ptr<Node> node, CreateRequest request, Message create)
    : node_(node),
      request_(std::move(request)),
      create_(std::move(create)),
      class_(ClassRegistry::Global().Find(request_.identity.class_name)),
      changed_(node->scheduler()->NewWaitQueue()) {
  std::unique_ptr<GroupMembership> group;
  if (request_.in_group) {
    group = std::make_unique<GroupMembership>();
    group->name = request_.channel.name;
    const auto mesh = DeviceMesh::Parse(request_.mesh);
    if (mesh.ok()) group->mesh = *mesh;
    group->rank = request_.group_rank;
    group->members = request_.channel.members;
    group->channel = std::make_unique<NodeChannel>(node.get(), request_.channel, request_.group_rank);
  }
  const bool restarted = (create_.envelope.flags & kFlagRestart) != 0;
  context_ = std::make_unique<ActorContext>(node.get(), request_.identity, restarted, std::move(group));
}

void ActorCell::Start() {
  const std::shared_ptr<Node> node = node_.lock();
  task_ = node->scheduler()->Start(request_.identity.name, [self = shared_from_this(), node] { self->Run(node); });
}

void ActorCell::Push(Message message, std::vector<std::shared_ptr<ObjectState>> refs, absl::Time deadline) {
  const Envelope envelope = message.envelope;
  uint64_t first_lost = envelope.sequence;
  absl::Status refused;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (stop_.has_value()) {
      refused = *stop_;
    } else {
      const auto [session, fresh] = sessions_.try_emplace(envelope.session, envelope.sequence);
      if (envelope.sequence < session->second) {
        ++duplicates_;  // it came before, or after a later one: its caller has been answered or told
        return;
      }
      first_lost = session->second;
      session->second = envelope.sequence + 1;
      queue_.push_back({std::move(message), std::move(refs), deadline});
      if (idle_) changed_->NotifyAll();
    }
  }
  const std::shared_ptr<Node> node = node_.lock();
  if (node == nullptr) return;
  if (!refused.ok()) return node->ReplyError(envelope, refused, /*refused=*/true);
  if (first_lost == envelope.sequence) return;
  // Messages come in order, so the ones between never will: their callers need not wait for the deadline.
  Message lost;
  lost.envelope.kind = MessageKind::kLost;
  lost.envelope.receiver_node = envelope.sender_node;
  lost.envelope.receiver_incarnation = envelope.sender_incarnation;
  lost.envelope.session = envelope.session;
  lost.envelope.sequence = first_lost;
  lost.envelope.request = envelope.sequence;
  (void)node->Post(std::move(lost), /*wait_for_node=*/false);
}

void ActorCell::Cancel(const Envelope& cancel) {
  const auto matches = [&](const Envelope& call) {
    return call.request == cancel.request && call.sender_node == cancel.sender_node &&
           call.sender_incarnation == cancel.sender_incarnation;
  };
  std::optional<Work> dropped;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!current_method_.empty() && matches(current_)) {
      context_->cancelled_.store(true, std::memory_order_relaxed);
      return;
    }
    for (auto it = queue_.begin(); it != queue_.end(); ++it) {
      if (!matches(it->message.envelope)) continue;
      dropped = std::move(*it);
      queue_.erase(it);
      break;
    }
  }
  const std::shared_ptr<Node> node = node_.lock();
  if (!dropped.has_value() || node == nullptr) return;
  node->ReplyError(dropped->message.envelope,
                   absl::CancelledError(absl::StrCat(identity().Describe(), ": cancelled before it ran")), true);
}

void ActorCell::Stop(const absl::Status& why, std::optional<Envelope> request) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!stop_.has_value()) stop_ = why;
  if (request.has_value()) stop_requests_.push_back(*request);
  context_->cancelled_.store(true, std::memory_order_relaxed);
  changed_->NotifyAll();
}

bool ActorCell::Join(absl::Time deadline) { return task_->Join(deadline); }

ActorReport ActorCell::Report() {
  ActorReport report;
  report.actor = identity().actor;
  report.class_name = identity().class_name;
  report.name = identity().name;
  report.rank = identity().rank;
  const std::lock_guard<std::mutex> lock(mutex_);
  report.queued = queue_.size();
  report.calls_done = calls_done_;
  report.duplicates_dropped = duplicates_;
  report.method = current_method_;
  if (!current_method_.empty()) report.running_seconds = absl::ToDoubleSeconds(absl::Now() - current_since_);
  return report;
}

absl::Status ActorCell::WithOrigin(const absl::Status& status, const std::string& method) const {
  return AddOrigin(status, {identity().name, identity().rank, identity().host, method, ""});
}

absl::Status ActorCell::Construct(Node& node) {
  if (class_ == nullptr || class_->methods.empty()) {
    return absl::NotFoundError(absl::StrCat("no actor class ", request_.identity.class_name, " in this program"));
  }
  const auto constructor = class_->constructors.find(request_.constructor);
  if (constructor == class_->constructors.end()) {
    return absl::NotFoundError(absl::StrCat(request_.identity.class_name, " has no such constructor in this program"));
  }
  try {
    TROUPE_ASSIGN_OR_RETURN(
        object_, constructor->second.make(*context_, request_.arguments, DecodeContext{create_.frames, {}, &node}));
    if (context_->restarted() && class_->restore != nullptr) {
      TROUPE_RETURN_IF_ERROR(Annotate(class_->restore(object_.get()), kRestore));
    }
  } catch (const std::exception& error) {
    return absl::InternalError(absl::StrCat("threw ", error.what()));
  }
  return absl::OkStatus();
}

void ActorCell::Run(const std::shared_ptr<Node>& node) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    current_method_ = kConstructor;
    current_since_ = absl::Now();
  }
  const absl::Status made = WithOrigin(Construct(*node), kConstructor);
  create_.frames.clear();
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    current_method_.clear();
    broken_ = made;
  }
  if (made.ok()) {
    node->ReplyValue(create_.envelope, EncodeValue(std::monostate()));
  } else {
    node->ReplyError(create_.envelope, made);
  }

  while (true) {
    Work work;
    {
      std::unique_lock<std::mutex> lock(mutex_);
      idle_ = true;
      while (queue_.empty() && !stop_.has_value()) changed_->WaitIdle(lock);
      idle_ = false;
      if (stop_.has_value()) break;
      work = std::move(queue_.front());
      queue_.pop_front();
    }
    Execute(*node, work);
  }

  object_.reset();  // on the task that ran its methods
  std::deque<Work> left;
  std::vector<Envelope> requests;
  absl::Status why;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    left.swap(queue_);
    requests.swap(stop_requests_);
    why = *stop_;
  }
  for (const Work& work : left) node->ReplyError(work.message.envelope, why, /*refused=*/true);
  for (const Envelope& request : requests) node->ReplyValue(request, EncodeValue(std::monostate()));
}

void ActorCell::Execute(Node& node, Work& work) {
  const Envelope& envelope = work.message.envelope;
  if (class_ == nullptr || envelope.method >= class_->methods.size()) {
    return node.ReplyError(
        envelope, WithOrigin(absl::UnimplementedError(absl::StrCat("no method ", envelope.method)), "call"), true);
  }
  const MethodEntry& method = class_->methods[envelope.method];
  absl::Status broken;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    broken = broken_;
    current_ = envelope;
    current_method_ = method.name;
    current_since_ = absl::Now();
    // A Stop that came first stays visible.
    if (!stop_.has_value()) context_->cancelled_.store(false, std::memory_order_relaxed);
  }
  {
    const std::lock_guard<std::mutex> lock(context_->mutex_);
    context_->deadline_ = work.deadline;
  }
  absl::StatusOr<Payload> result = broken.ok() ? Invoke(node, work, method) : absl::StatusOr<Payload>(broken);
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    current_method_.clear();
    ++calls_done_;
  }
  if (result.ok()) {
    node.ReplyValue(envelope, *std::move(result));
  } else {
    node.ReplyError(envelope, broken.ok() ? WithOrigin(result.status(), method.name) : broken);
  }
}

absl::StatusOr<Payload> ActorCell::Invoke(Node& node, Work& work, const MethodEntry& method) {
  if (absl::Now() >= work.deadline) {
    return absl::DeadlineExceededError("its deadline passed in the mailbox, so it did not run");
  }
  // A failed reference is the method's business: one that takes the value fails, one that takes the reference may ask.
  for (const auto& ref : work.refs) {
    const auto value = ref->Value(work.deadline);
    if (!value.ok() && ref->kind() != ObjectState::Kind::kFailed) return Annotate(value.status(), "argument");
  }
  try {
    return method.invoke(object_.get(), work.message.body, DecodeContext{work.message.frames, work.refs, &node});
  } catch (const std::exception& error) {
    return absl::InternalError(absl::StrCat("threw ", error.what()));
  }
}

}  // namespace troupe::runtime
