#include "runtime/actor/object_state.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/actor/actor_target.h"
#include "runtime/base/status.h"
#include "runtime/node/node.h"

namespace troupe::runtime {

ObjectState::ObjectState(std::shared_ptr<Node> node, std::shared_ptr<ActorTarget> target, const char* method,
                         uint64_t request, absl::Time deadline)
    : node_(node),
      scheduler_(node->scheduler()),
      target_(std::move(target)),
      method_(method),
      request_(request),
      deadline_(deadline),
      changed_(scheduler_->NewWaitQueue()) {}

ObjectState::~ObjectState() {
  if (!owned_ && exported_ == 0) return;
  const std::shared_ptr<Node> node = node_.lock();
  if (node == nullptr) return;
  if (exported_ != 0) node->Unexport(exported_);
  if (owned_) node->Release(owned_place_);
}

std::string ObjectState::Describe() const {
  if (target_ == nullptr) return method_;
  return absl::StrCat(target_->identity.Describe(), ": ", method_);
}

void ObjectState::Settle(std::unique_lock<std::mutex>& lock, Kind kind) {
  kind_ = kind;
  fetching_ = false;
  std::vector<std::function<void()>> callbacks;
  callbacks.swap(callbacks_);
  changed_->NotifyAll();
  lock.unlock();
  for (const auto& callback : callbacks) callback();
}

void ObjectState::SetLocal(Payload payload) {
  std::unique_lock<std::mutex> lock(mutex_);
  if (kind_ == Kind::kLocal || kind_ == Kind::kFailed) return;
  payload_ = std::move(payload);
  Settle(lock, Kind::kLocal);
}

void ObjectState::SetRemote(const ObjectPlace& place, bool owned) {
  std::unique_lock<std::mutex> lock(mutex_);
  if (owned) {
    owned_ = true;
    owned_place_ = place;
  }
  if (kind_ == Kind::kLocal || kind_ == Kind::kFailed) return;
  place_ = place;
  Settle(lock, Kind::kRemote);
}

void ObjectState::Fail(const absl::Status& status) {
  std::unique_lock<std::mutex> lock(mutex_);
  if (kind_ == Kind::kLocal || kind_ == Kind::kFailed) return;
  status_ = status;
  Settle(lock, Kind::kFailed);
}

ObjectState::Kind ObjectState::kind() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return kind_;
}

absl::Status ObjectState::status() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return status_;
}

ObjectPlace ObjectState::place() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return place_;
}

uint64_t ObjectState::exported() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return exported_;
}

void ObjectState::set_exported(uint64_t number) {
  const std::lock_guard<std::mutex> lock(mutex_);
  exported_ = number;
}

void ObjectState::WhenSettled(std::function<void()> callback) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (kind_ == Kind::kPending) {
      callbacks_.push_back(std::move(callback));
      return;
    }
  }
  callback();
}

absl::Status ObjectState::GiveUpWait(const absl::Status& why, absl::Time deadline) {
  if (why.code() != absl::StatusCode::kDeadlineExceeded || deadline < deadline_) return why;
  // The call itself is over, not only this wait for it: every later Get says the same.
  absl::Status status(absl::StatusCode::kDeadlineExceeded,
                      absl::StrCat(Describe(), ": no answer before its deadline, outcome unknown"));
  if (const auto node = node_.lock()) node->Forget(request_);
  Fail(status);
  return this->status();
}

absl::Status ObjectState::WaitSettled(absl::Time deadline) {
  absl::Status waited;
  {
    std::unique_lock<std::mutex> lock(mutex_);
    const auto what = [this] { return Describe(); };
    waited = WaitUntil(*scheduler_, *changed_, lock, std::min(deadline, deadline_), what,
                       [this] { return kind_ != Kind::kPending; });
  }
  if (!waited.ok()) {
    const absl::Status status = GiveUpWait(waited, deadline);
    return kind() == Kind::kPending ? status : absl::OkStatus();
  }
  return absl::OkStatus();
}

void ObjectState::StartFetch() {
  ObjectPlace place;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (kind_ != Kind::kRemote || fetching_) return;
    fetching_ = true;
    place = place_;
  }
  if (const auto node = node_.lock()) {
    node->Fetch(shared_from_this(), place);
  } else {
    Fail(absl::UnavailableError(absl::StrCat(Describe(), ": the node is closed")));
  }
}

absl::StatusOr<const Payload*> ObjectState::Value(absl::Time deadline) {
  // Fetching has a deadline of its own: the call itself was answered in time.
  while (true) {
    TROUPE_RETURN_IF_ERROR(WaitSettled(deadline));
    StartFetch();
    std::unique_lock<std::mutex> lock(mutex_);
    const auto what = [this] { return absl::StrCat("the value of ", Describe()); };
    TROUPE_RETURN_IF_ERROR(WaitUntil(*scheduler_, *changed_, lock, deadline, what,
                                     [this] { return kind_ != Kind::kRemote || !fetching_; }));
    if (kind_ == Kind::kFailed) return status_;
    if (kind_ == Kind::kLocal) return &payload_;
  }
}

void ObjectState::Cancel() {
  if (target_ == nullptr) return;
  if (const auto node = node_.lock()) node->Cancel(*target_, request_);
}

}  // namespace troupe::runtime
