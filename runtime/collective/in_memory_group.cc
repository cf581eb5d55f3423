#include "runtime/collective/in_memory_group.h"

#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "runtime/base/check.h"

namespace troupe::runtime {

/// Locks are those of the standard library: ThreadSanitizer does not see inside a Mutex of Abseil that was built
/// without it.
struct InMemoryGroup::State {
  struct Inbox {
    std::map<std::pair<int, uint64_t>, std::deque<Buffer>> queues;  // by sender and tag
    std::condition_variable arrived;
  };

  explicit State(int size) : inboxes(static_cast<size_t>(size)), dead(static_cast<size_t>(size)) {}

  /// With `mutex` held.
  void WakeAll() {
    for (Inbox& inbox : inboxes) inbox.arrived.notify_all();
  }

  std::mutex mutex;  // guards all below
  std::vector<Inbox> inboxes;
  std::vector<absl::Status> dead;  // why, OK while alive
  absl::Status revoked;
};

class InMemoryGroup::Member final : public PointToPoint {
 public:
  Member(std::shared_ptr<State> state, int rank, int size) : state_(std::move(state)), rank_(rank), size_(size) {}

  int rank() const override { return rank_; }
  int size() const override { return size_; }

  absl::Status Send(int to, uint64_t tag, Buffer data) override {
    TROUPE_CHECK(to >= 0 && to < size_) << "rank " << to << " of " << size_;
    const std::lock_guard<std::mutex> lock(state_->mutex);
    if (!state_->revoked.ok()) return state_->revoked;
    const absl::Status& dead = state_->dead[static_cast<size_t>(to)];
    if (!dead.ok()) return dead;
    State::Inbox& inbox = state_->inboxes[static_cast<size_t>(to)];
    inbox.queues[{rank_, tag}].push_back(std::move(data));
    inbox.arrived.notify_all();
    return absl::OkStatus();
  }

  absl::StatusOr<Buffer> Receive(int from, uint64_t tag, absl::Time deadline) override {
    TROUPE_CHECK(from >= 0 && from < size_) << "rank " << from << " of " << size_;
    std::unique_lock<std::mutex> lock(state_->mutex);
    State::Inbox& inbox = state_->inboxes[static_cast<size_t>(rank_)];
    for (bool late = false;;) {
      if (!state_->revoked.ok()) return state_->revoked;
      const auto queue = inbox.queues.find({from, tag});
      if (queue != inbox.queues.end()) {
        Buffer data = std::move(queue->second.front());
        queue->second.pop_front();
        if (queue->second.empty()) inbox.queues.erase(queue);
        return data;
      }
      const absl::Status& dead = state_->dead[static_cast<size_t>(from)];
      if (!dead.ok()) return dead;
      if (late) return absl::DeadlineExceededError(absl::StrCat("nothing came from rank ", from));
      if (deadline == absl::InfiniteFuture()) {
        inbox.arrived.wait(lock);
      } else if (deadline <= absl::Now()) {
        late = true;
      } else {
        late = inbox.arrived.wait_until(lock, absl::ToChronoTime(deadline)) == std::cv_status::timeout;
      }
    }
  }

  void Revoke(const absl::Status& why) override {
    TROUPE_CHECK(!why.ok()) << "a revoke needs a reason";
    const std::lock_guard<std::mutex> lock(state_->mutex);
    if (!state_->revoked.ok()) return;
    state_->revoked = why;
    state_->WakeAll();
  }

  absl::Status revoked() const override {
    const std::lock_guard<std::mutex> lock(state_->mutex);
    return state_->revoked;
  }

 private:
  std::shared_ptr<State> state_;
  const int rank_;
  const int size_;
};

InMemoryGroup::InMemoryGroup(int size) : state_(std::make_shared<State>(size)) {
  TROUPE_CHECK_GT(size, 0);
  for (int rank = 0; rank < size; ++rank) members_.push_back(std::make_unique<Member>(state_, rank, size));
}

InMemoryGroup::~InMemoryGroup() = default;

int InMemoryGroup::size() const { return static_cast<int>(members_.size()); }

PointToPoint* InMemoryGroup::member(int rank) { return members_.at(static_cast<size_t>(rank)).get(); }

void InMemoryGroup::Kill(int rank, const absl::Status& why) {
  TROUPE_CHECK(!why.ok()) << "a death needs a reason";
  const std::lock_guard<std::mutex> lock(state_->mutex);
  state_->dead.at(static_cast<size_t>(rank)) = why;
  state_->WakeAll();
}

}  // namespace troupe::runtime
