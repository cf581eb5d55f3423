/// What the copies of an ObjectRef share: nothing yet, a value, where the value lies, or why there is none.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "runtime/msg/codec.h"
#include "runtime/msg/message.h"
#include "runtime/sched/scheduler.h"

namespace troupe::runtime {

struct ActorTarget;

/// Where an object lies: numbered by the node that holds it.
struct ObjectPlace {
  int32_t node = -1;
  uint32_t incarnation = 0;
  uint64_t object = 0;
  MSGPACK_DEFINE(node, incarnation, object)
};

/// Threads   thread-safe.
/// Lifetime  tells the node that holds the value when nobody here wants it any more.
class ObjectState : public std::enable_shared_from_this<ObjectState> {
 public:
  enum class Kind { kPending, kLocal, kRemote, kFailed };

  /// `method` of `target` will give the value; `target` may be null for a value that comes from elsewhere.
  ObjectState(std::shared_ptr<Node> node, std::shared_ptr<ActorTarget> target, const char* method, uint64_t request,
              absl::Time deadline);
  ~ObjectState();
  ObjectState(const ObjectState&) = delete;
  ObjectState& operator=(const ObjectState&) = delete;

  void SetLocal(Payload payload);
  /// `owned`: the value is kept there for us, and we must say when we are done.
  void SetRemote(const ObjectPlace& place, bool owned);
  void Fail(const absl::Status& status);

  Kind kind() const;
  /// The error of kFailed.
  absl::Status status() const;
  ObjectPlace place() const;
  /// Runs `callback` when the kind is not kPending any more, perhaps at once; it must not wait or make calls.
  void WhenSettled(std::function<void()> callback);
  /// Waits until the kind is not kPending; the call's own deadline counts too.
  absl::Status WaitSettled(absl::Time deadline);
  /// Waits for the value and fetches it from where it lies. Valid as long as this object.
  absl::StatusOr<const Payload*> Value(absl::Time deadline);
  /// Asks for the value to be brought here, without waiting.
  void StartFetch();
  void Cancel();

  /// The number under which this node hands the object to others; 0 when it never did.
  uint64_t exported() const;
  void set_exported(uint64_t number);

  std::string Describe() const;
  Scheduler& scheduler() const { return *scheduler_; }
  /// Null when it is gone.
  std::shared_ptr<Node> node() const { return node_.lock(); }
  const std::shared_ptr<ActorTarget>& target() const { return target_; }
  const char* method() const { return method_; }
  absl::Time call_deadline() const { return deadline_; }

 private:
  void Settle(std::unique_lock<std::mutex>& lock, Kind kind) ABSL_NO_THREAD_SAFETY_ANALYSIS;
  absl::Status GiveUpWait(const absl::Status& why, absl::Time deadline);

  const std::weak_ptr<Node> node_;
  const std::shared_ptr<Scheduler> scheduler_;
  const std::shared_ptr<ActorTarget> target_;
  const char* const method_;
  const uint64_t request_;
  const absl::Time deadline_;

  mutable std::mutex mutex_;
  std::unique_ptr<WaitQueue> changed_;
  Kind kind_ ABSL_GUARDED_BY(mutex_) = Kind::kPending;
  Payload payload_ ABSL_GUARDED_BY(mutex_);  ///< never changes once the kind is kLocal
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
  ObjectPlace place_ ABSL_GUARDED_BY(mutex_);
  bool owned_ ABSL_GUARDED_BY(mutex_) = false;
  ObjectPlace owned_place_ ABSL_GUARDED_BY(mutex_);
  bool fetching_ ABSL_GUARDED_BY(mutex_) = false;
  uint64_t exported_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<std::function<void()>> callbacks_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace troupe::runtime
