#include "runtime/control/client.h"

#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <map>
#include <mutex>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "runtime/base/check.h"
#include "runtime/base/status.h"
#include "runtime/control/coordinator.h"
#include "runtime/control/internal/connection.h"
#include "runtime/control/internal/wire.h"

namespace troupe::runtime {
namespace {

/// For questions that the coordinator answers at once; and what it may take longer for those that wait for something.
constexpr absl::Duration kAnswerTimeout = absl::Seconds(10);

/// The directory behind a coordinator: keeps a copy of who is up, asks for the rest.
class ControlDirectory final : public Directory {
 public:
  static absl::StatusOr<std::unique_ptr<Directory>> Connect(const ProcessIdentity& identity, const std::string& build_id,
                                                            uint64_t signature_hash, absl::Duration timeout) {
    auto directory = std::unique_ptr<ControlDirectory>(new ControlDirectory(identity));
    internal::ConnectionOptions options;
    options.coordinator = identity.coordinator;
    options.name = absl::StrCat("node-", identity.node, ":", identity.incarnation, ":", getpid());
    options.job_epoch = identity.job_epoch;
    TROUPE_ASSIGN_OR_RETURN(directory->connection_,
                            internal::Connection::Open(
                                options, [self = directory.get()](const control::Message& message) { self->OnMessage(message); },
                                [self = directory.get()](const absl::Status& why) { self->Shutdown(why); }));
    control::Message hello;
    hello.mutable_node_hello()->set_protocol(internal::kControlProtocol);
    *hello.mutable_node_hello()->mutable_node() = internal::ToControl(directory->self_);
    hello.mutable_node_hello()->set_build_id(build_id);
    hello.mutable_node_hello()->set_signature_hash(signature_hash);
    const auto welcome = directory->connection_->Ask(std::move(hello), timeout);
    if (!welcome.ok()) return Annotate(welcome.status(), "cannot join the job");
    directory->joined_ = true;
    return directory;
  }

  ~ControlDirectory() override {
    if (connection_ == nullptr || !joined_) return;
    control::Message message;
    message.mutable_goodbye();
    connection_->Send(std::move(message));
    connection_.reset();  // its thread calls us until then
  }

  const NodeAddress& self() const override { return self_; }

  void Listen(Listener* listener) override {
    connection_->RunAndWait([this, listener] {
      TROUPE_CHECK(listener_ == nullptr) << "a directory has one listener";
      std::map<int32_t, NodeAddress> nodes;
      std::map<int32_t, std::pair<NodeAddress, absl::Status>> down;
      {
        const std::lock_guard<std::mutex> lock(mutex_);
        nodes = up_;
        down = down_;
      }
      listener_ = listener;
      for (const auto& [id, node] : nodes) {
        if (id != self_.id) listener_->OnNodeUp(node);
      }
      // One that was up and died before anybody listened is news too.
      for (const auto& [id, gone] : down) {
        listener_->OnNodeUp(gone.first);
        listener_->OnNodeDown(gone.first, gone.second);
      }
      for (const absl::Status& why : std::exchange(shutdowns_, {})) listener_->OnShutdown(why);
    });
  }

  absl::StatusOr<std::vector<NodeAddress>> WaitForWorkers(int count, absl::Time deadline) override {
    std::vector<NodeAddress> workers;
    absl::Status dead;
    const auto decided = [&]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
      workers.clear();
      for (const auto& [id, node] : up_) {
        if (node.rank >= 0 && node.rank < count) workers.push_back(node);
      }
      for (const auto& [id, gone] : down_) {
        if (gone.first.rank >= 0 && gone.first.rank < count) dead = gone.second;
      }
      if (shutdown_.has_value()) dead = *shutdown_;
      return !dead.ok() || static_cast<int>(workers.size()) == count;
    };
    std::unique_lock<std::mutex> lock(mutex_);
    const bool in_time = changed_.wait_for(lock, absl::ToChronoNanoseconds(Remaining(deadline)), decided);
    if (!dead.ok()) return Annotate(dead, absl::StrCat("waiting for ", count, " workers"));
    if (!in_time) {
      return absl::DeadlineExceededError(absl::StrCat(workers.size(), " of ", count, " workers were up in time; missing: ",
                                                      Missing(workers, count)));
    }
    return workers;
  }

  absl::Status RegisterName(const std::string& name, const ActorAddress& actor) override {
    control::Message message;
    control::RegisterName& body = *message.mutable_register_name();
    body.set_name(name);
    body.set_node(actor.node);
    body.set_actor(actor.actor);
    body.set_class_name(actor.class_name);
    return connection_->Ask(std::move(message), kAnswerTimeout).status();
  }

  absl::StatusOr<ActorAddress> LookUpName(const std::string& name, absl::Time deadline) override {
    const absl::Duration timeout = Remaining(deadline);
    control::Message message;
    message.mutable_look_up_name()->set_name(name);
    message.mutable_look_up_name()->set_timeout_us(absl::ToInt64Microseconds(timeout));
    TROUPE_ASSIGN_OR_RETURN(const control::Answer answer, connection_->Ask(std::move(message), timeout + kAnswerTimeout));
    ActorAddress address;
    address.node = answer.node();
    address.actor = answer.actor();
    address.class_name = answer.class_name();
    return address;
  }

  absl::Status RemoveName(const std::string& name) override {
    control::Message message;
    message.mutable_remove_name()->set_name(name);
    return connection_->Ask(std::move(message), kAnswerTimeout).status();
  }

  absl::Status SetMaxRestarts(int32_t node, int max_restarts) override {
    control::Message message;
    message.mutable_set_max_restarts()->set_node(node);
    message.mutable_set_max_restarts()->set_max_restarts(max_restarts);
    return connection_->Ask(std::move(message), kAnswerTimeout).status();
  }

 private:
  explicit ControlDirectory(const ProcessIdentity& identity) {
    self_.id = identity.node;
    self_.incarnation = identity.incarnation;
    self_.rank = identity.rank;
    self_.endpoint = identity.endpoint;
    self_.host = identity.host;
    self_.pid = getpid();
    up_[self_.id] = self_;
  }

  static absl::Duration Remaining(absl::Time deadline) {
    // The standard library adds to a clock, which overflows for what means "for ever".
    constexpr absl::Duration kLongest = absl::Hours(24 * 365);
    return std::clamp(deadline - absl::Now(), absl::ZeroDuration(), kLongest);
  }

  static std::string Missing(const std::vector<NodeAddress>& workers, int count) {
    std::string missing;
    for (int rank = 0; rank < count; ++rank) {
      const auto is = [&](const NodeAddress& worker) { return worker.rank == rank; };
      if (std::any_of(workers.begin(), workers.end(), is)) continue;
      absl::StrAppend(&missing, missing.empty() ? "rank " : ", ", rank);
    }
    return missing;
  }

  // On the connection's thread. The listener hears of a change before those who wait for it go on.
  void OnMessage(const control::Message& message) {
    if (message.has_node_up()) {
      const NodeAddress node = internal::FromControl(message.node_up().node());
      if (listener_ != nullptr) listener_->OnNodeUp(node);
      const std::lock_guard<std::mutex> lock(mutex_);
      up_[node.id] = node;
      down_.erase(node.id);
      changed_.notify_all();
    } else if (message.has_node_down()) {
      const NodeAddress node = internal::FromControl(message.node_down().node());
      const absl::Status why = internal::FromControl(message.node_down().why());
      if (listener_ != nullptr) listener_->OnNodeDown(node, why);
      const std::lock_guard<std::mutex> lock(mutex_);
      up_.erase(node.id);
      if (!message.node_down().restarts()) down_[node.id] = {node, why};
      changed_.notify_all();
    } else if (message.has_shutdown()) {
      Shutdown(internal::FromControl(message.shutdown().why()));
    }
  }

  void Shutdown(const absl::Status& why) {
    if (listener_ != nullptr) {
      listener_->OnShutdown(why);
    } else {
      shutdowns_.push_back(why);
    }
    const std::lock_guard<std::mutex> lock(mutex_);
    shutdown_ = why.ok() ? absl::CancelledError("the job has ended") : why;
    changed_.notify_all();
  }

  NodeAddress self_;
  bool joined_ = false;
  // The connection's thread's own.
  Listener* listener_ = nullptr;
  std::vector<absl::Status> shutdowns_;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<int32_t, NodeAddress> up_ ABSL_GUARDED_BY(mutex_);
  /// Those that will not come back.
  std::map<int32_t, std::pair<NodeAddress, absl::Status>> down_ ABSL_GUARDED_BY(mutex_);
  std::optional<absl::Status> shutdown_ ABSL_GUARDED_BY(mutex_);

  std::unique_ptr<internal::Connection> connection_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Directory>> ConnectDirectory(const ProcessIdentity& identity, const std::string& build_id,
                                                            uint64_t signature_hash, absl::Duration timeout) {
  return ControlDirectory::Connect(identity, build_id, signature_hash, timeout);
}

absl::Status SetLogDirectory(const ProcessIdentity& identity, const std::string& directory, absl::Duration timeout) {
  internal::ConnectionOptions options;
  options.coordinator = identity.coordinator;
  options.name = absl::StrCat("logs-", RandomName());
  options.job_epoch = identity.job_epoch;
  const auto ignore = [](const auto&) {};
  TROUPE_ASSIGN_OR_RETURN(const auto connection, internal::Connection::Open(options, ignore, ignore));
  control::Message message;
  message.mutable_set_log_directory()->set_directory(directory);
  return connection->Ask(std::move(message), timeout).status();
}

}  // namespace troupe::runtime
