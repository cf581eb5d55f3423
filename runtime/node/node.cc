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

void Node::Defer(std::function<void()> job) {
  const std::lock_guard<std::mutex> lock(deferred_mutex_);
  if (deferred_stop_) return;
  deferred_.push_back(std::move(job));
  if (deferred_task_ == nullptr) {
    deferred_task_ =
        scheduler_->Start(absl::StrCat("node", address().id), [self = shared_from_this()] { self->RunDeferred(); });
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
    status = absl::DeadlineExceededError(absl::StrCat(cell->identity().Describe(), ": ", report.method,
                                                      " did not end within ", absl::FormatDuration(timeout)));
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
