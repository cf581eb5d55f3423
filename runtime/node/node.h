/// One process's (in local mode: one rank's) part in a job: its actors, the calls it waits for, the results it holds.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "runtime/actor/actor_target.h"
#include "runtime/actor/object_state.h"
#include "runtime/msg/message.h"
#include "runtime/node/channel.h"
#include "runtime/node/directory.h"
#include "runtime/node/object_store.h"
#include "runtime/node/peers.h"
#include "runtime/node/pending_calls.h"
#include "runtime/node/report.h"
#include "runtime/sched/scheduler.h"
#include "runtime/transport/transport.h"

namespace troupe::runtime {

class ActorCell;

struct NodeOptions {
  uint64_t job_epoch = 0;
  absl::Duration default_timeout = absl::Hours(1);  ///< of a call that names none
  size_t inline_bytes = 64 << 10;                   ///< larger results stay where they were made until they are fetched
};

/// What is called: a method as its registration numbers it.
struct MethodRef {
  uint32_t id = 0;
  const char* name = "";
  bool idempotent = false;
};

/// How an actor is made; travels in kCreate.
struct CreateRequest {
  ActorIdentity identity;
  uint64_t constructor = 0;
  std::string arguments;
  bool in_group = false;
  std::string mesh;
  int32_t group_rank = 0;
  ChannelDescription channel;
  MSGPACK_DEFINE(identity, constructor, arguments, in_group, mesh, group_rank, channel)
};

/// Runs calls of others on its actors, and makes calls for its own.
///
/// Invariants, each with a test of the same name:
///   I-1  Calls made through one handle run in the order they were made.
///   I-2  A call runs at most once. A lost call is an error, never a repeat (unless its method is declared idempotent).
///   I-3  Every wait has a deadline, and ends when its peer dies.
///   I-4  A message of a past incarnation, or for one, is refused and never run.
///
/// Liveness, cancel, fetch and introspection are answered by whoever brings the message, never behind a method.
/// Threads   thread-safe.
/// Lifetime  Close before the last reference goes.
class Node final : public Directory::Listener, public std::enable_shared_from_this<Node> {
 public:
  static std::shared_ptr<Node> Start(std::shared_ptr<Directory> directory, std::shared_ptr<Scheduler> scheduler,
                                     std::unique_ptr<Transport> transport, NodeOptions options);
  ~Node() override;

  const NodeAddress& address() const { return directory_->self(); }
  Directory& directory() { return *directory_; }
  const std::shared_ptr<Scheduler>& scheduler() const { return scheduler_; }
  ChannelHub& channels() { return channels_; }
  const NodeOptions& options() const { return options_; }

  // What handles and references are made of.
  std::shared_ptr<ActorTarget> MakeTarget(ActorIdentity identity);
  /// `timeout` zero means the default.
  std::shared_ptr<ObjectState> Call(const std::shared_ptr<ActorTarget>& target, const MethodRef& method,
                                    Payload arguments, std::vector<std::shared_ptr<ObjectState>> refs,
                                    absl::Duration timeout);
  /// The state ends when the constructor has run. `max_restarts` > 0 makes the actor again when its node comes back.
  std::shared_ptr<ObjectState> Create(const std::shared_ptr<ActorTarget>& target, CreateRequest request,
                                      std::vector<Buffer> frames, int max_restarts, absl::Duration timeout);
  std::shared_ptr<ObjectState> Destroy(const std::shared_ptr<ActorTarget>& target, absl::Duration timeout);
  /// A number for an actor, channel or object that no other node of the job gives out.
  uint64_t NewNumber();
  absl::StatusOr<ActorIdentity> LookUp(const std::string& name, absl::Duration timeout);
  void Cancel(const ActorTarget& target, uint64_t request);
  void Fetch(const std::shared_ptr<ObjectState>& state, const ObjectPlace& place);
  void Release(const ObjectPlace& place);
  void Forget(uint64_t request);
  void Unexport(uint64_t number);

  /// Sends a message, filling in who sends it.
  ///
  /// Errors  UNAVAILABLE when the receiver is dead (the message is untouched then); with `wait_for_node` it is kept until the
  ///         receiver is up again.
  absl::Status Post(Message&& message, bool wait_for_node);
  void ReplyError(const Envelope& request, const absl::Status& status, bool refused = false);
  void ReplyValue(const Envelope& request, Payload payload);
  /// Breaks a channel for all its members.
  void RevokeChannel(const ChannelDescription& channel, uint32_t epoch, const absl::Status& why);
  /// Members of a channel forget what was sent before and why it broke.
  void ResetChannel(const ChannelDescription& channel, uint32_t epoch);
  /// Where a node runs, for people; empty when it is not known.
  std::string HostOf(int32_t node) const;
  /// Why a node is down, OK when it is not known to be.
  absl::Status DownReason(int32_t node) const;

  NodeReport Report();
  absl::StatusOr<NodeReport> ReportOf(int32_t node, absl::Duration timeout);

  /// `callback` is told, from any thread, that the job is to end: OK from the driver, CANCELLED for Ctrl-C (the driver still decides
  /// when), anything else at once. What came before is told now.
  void OnShutdownDo(std::function<void(const absl::Status&)> callback);
  /// Tells all workers that the job ends.
  void ShutDownWorkers();
  /// Runs `job` soon on a task of the node, where it may block.
  void Defer(std::function<void()> job);
  /// Ends all actors and waits; what still waits for an answer gets an error.
  ///
  /// Errors  DEADLINE_EXCEEDED naming the actor and method that did not end.
  absl::Status Close(absl::Duration timeout);

  void OnNodeUp(const NodeAddress& node) override;
  void OnNodeDown(const NodeAddress& node, const absl::Status& why) override;
  void OnShutdown(const absl::Status& why) override;

 private:
  /// An actor that this node made and will make again.
  struct Restartable {
    CreateRequest request;
    std::vector<Buffer> frames;
    int restarts_left = 0;
    uint32_t incarnation = 0;  ///< of the node, when it was made last
  };

  Node(std::shared_ptr<Directory> directory, std::shared_ptr<Scheduler> scheduler, std::unique_ptr<Transport> transport,
       NodeOptions options);

  void OnMessage(Message message);
  void Handle(Message message);
  void HandleCreate(Message message);
  void HandleCall(Message message);
  void HandleDestroy(const Message& message);
  void HandleReply(Message message);
  void HandleFetch(const Message& message);
  void HandleLost(const Message& message);
  void HandleIntrospect(const Message& message);
  std::vector<std::shared_ptr<ObjectState>> AdoptRefs(Message& message, absl::Time deadline, absl::Status* status);
  std::string ExportRefs(const std::vector<std::shared_ptr<ObjectState>>& refs);
  std::shared_ptr<ActorCell> FindActor(uint64_t actor);
  /// Sends a request and remembers it; on failure its state fails.
  void SendRequest(Message message, PendingCall call, bool wait_for_node);
  /// Hands a message to the transport; the answer to it is expected from that incarnation.
  void SendNow(const NodeAddress& address, Message message);
  void FailCall(PendingCall call, const absl::Status& why, bool did_not_run);
  void CallAgain(PendingCall call);
  void MakeAgain(const NodeAddress& node);
  void RunDeferred();

  std::shared_ptr<Directory> directory_;
  const std::shared_ptr<Scheduler> scheduler_;
  const std::unique_ptr<Transport> transport_;
  const NodeOptions options_;

  std::atomic<uint64_t> next_request_{1};
  std::atomic<uint32_t> next_number_{1};
  std::atomic<bool> closing_{false};
  Peers peers_;
  PendingCalls pending_;
  ObjectStore objects_;
  ChannelHub channels_;

  std::shared_mutex actors_mutex_;
  std::unordered_map<uint64_t, std::shared_ptr<ActorCell>> actors_ ABSL_GUARDED_BY(actors_mutex_);
  /// Calls for an actor that is about to be made again.
  std::unordered_map<uint64_t, std::vector<Message>> early_calls_ ABSL_GUARDED_BY(actors_mutex_);

  std::mutex exports_mutex_;
  std::unordered_map<uint64_t, std::weak_ptr<ObjectState>> exports_ ABSL_GUARDED_BY(exports_mutex_);

  std::mutex restartables_mutex_;
  std::map<uint64_t, Restartable> restartables_ ABSL_GUARDED_BY(restartables_mutex_);

  std::mutex deferred_mutex_;
  std::unique_ptr<WaitQueue> deferred_changed_;
  std::deque<std::function<void()>> deferred_ ABSL_GUARDED_BY(deferred_mutex_);
  std::shared_ptr<Task> deferred_task_ ABSL_GUARDED_BY(deferred_mutex_);
  bool deferred_stop_ ABSL_GUARDED_BY(deferred_mutex_) = false;

  std::mutex shutdown_mutex_;
  std::function<void(const absl::Status&)> on_shutdown_ ABSL_GUARDED_BY(shutdown_mutex_);
  std::vector<absl::Status> shutdowns_ ABSL_GUARDED_BY(shutdown_mutex_);
};

}  // namespace troupe::runtime
