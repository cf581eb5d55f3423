#include "runtime/control/coordinator.h"

#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "runtime/base/check.h"
#include "runtime/base/log.h"
#include "runtime/base/status.h"
#include "runtime/control/internal/cluster_state.h"
#include "runtime/control/internal/wire.h"
#include "runtime/control/internal/zmq_socket.h"

namespace troupe::runtime {
namespace {

uint64_t RandomNumber() {
  uint64_t number = 0;
  while (number == 0) {
    const ssize_t got = getrandom(&number, sizeof(number), 0);
    TROUPE_CHECK(got == sizeof(number) || errno == EINTR) << std::strerror(errno);
  }
  return number;
}

/// Of a clock that never goes back.
absl::Time Now() { return absl::UnixEpoch() + absl::FromChrono(std::chrono::steady_clock::now().time_since_epoch()); }

bool MayListenOn(absl::string_view endpoint) {
  return absl::StartsWith(endpoint, "ipc://@") || absl::StartsWith(endpoint, "tcp://127.0.0.1:");
}

}  // namespace

std::string RandomName() { return absl::StrCat(absl::Hex(RandomNumber(), absl::kZeroPad16)); }

class Coordinator::Loop {
 public:
  explicit Loop(const CoordinatorOptions& options)
      : state_({options.host_lease, RandomNumber(), {}}), socket_(internal::ZmqSocket::Kind::kRouter) {
    constexpr absl::Duration kLinger = absl::Milliseconds(100);
    socket_.SetLinger(kLinger);
    wake_fd_ = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    TROUPE_CHECK_GE(wake_fd_, 0) << std::strerror(errno);
  }
  ~Loop() { close(wake_fd_); }

  absl::Status Bind(const std::string& endpoint) { return socket_.Bind(endpoint); }

  void Run() {
    absl::Time last_turn = Now();
    while (!stopping_) {
      const absl::Duration wait = std::min(state_.NextDeadline() - Now(), kLongestTurn);
      socket_.Wait(wake_fd_, wait);
      absl::Time now = Now();
      // When this process was stopped, agents could not be heard; that is not their silence.
      if (now - last_turn > kLongestTurn + kLongestTurn) state_.ForgiveSilence(now);
      last_turn = now;
      Receive(now);
      state_.Tick(now);
      Send();
    }
  }

  void Stop() {
    stopping_ = true;
    const uint64_t one = 1;
    (void)!write(wake_fd_, &one, sizeof(one));
  }

 private:
  static constexpr absl::Duration kLongestTurn = absl::Milliseconds(500);

  void Receive(absl::Time now) {
    // Bounded, so that a flood of messages does not keep ours from being sent.
    constexpr int kBatch = 256;
    std::vector<std::string> parts;
    for (int i = 0; i < kBatch && socket_.Receive(&parts, internal::kMaxControlBytes); ++i) {
      const std::string& peer = parts[0];
      absl::StatusOr<control::Message> message =
          parts.size() == 2 ? internal::ParseControl(parts[1])
                            : absl::InvalidArgumentError(absl::StrCat("control message: of ", parts.size() - 1, " parts"));
      const absl::Status status = message.ok() ? state_.Handle(peer, *message, now) : message.status();
      if (status.ok()) continue;
      LogWarning("coordinator: ", message.ok() ? internal::KindOf(*message) : "a message", " from ",
                 absl::CHexEscape(peer), " was refused: ", std::string(status.message()));
    }
  }

  void Send() {
    for (const internal::Outgoing& out : state_.TakeOutgoing()) {
      const absl::Status sent = socket_.Send({out.peer, internal::EncodeControl(out.message)});
      if (sent.ok()) continue;
      // Who is gone needs no answer; who does not read for so long that nothing fits any more misses something.
      const std::string what =
          absl::StrCat("coordinator: cannot send ", internal::KindOf(out.message), " to ", absl::CHexEscape(out.peer), ": ",
                       sent.message());
      if (absl::IsUnavailable(sent)) {
        LogDebug(what);
      } else {
        LogError(what);
      }
    }
  }

  internal::ClusterState state_;
  internal::ZmqSocket socket_;
  int wake_fd_ = -1;
  std::atomic<bool> stopping_{false};
};

absl::StatusOr<std::unique_ptr<Coordinator>> Coordinator::Start(const CoordinatorOptions& options) {
  auto coordinator = std::unique_ptr<Coordinator>(new Coordinator());
  coordinator->endpoint_ = options.endpoint.empty() ? absl::StrCat("ipc://@troupe-", RandomName()) : options.endpoint;
  if (!MayListenOn(coordinator->endpoint_)) {
    return absl::InvalidArgumentError(absl::StrCat("the coordinator will not listen on ", coordinator->endpoint_,
                                                   ": connections between hosts need a cluster key"));
  }
  coordinator->loop_ = std::make_unique<Loop>(options);
  TROUPE_RETURN_IF_ERROR(coordinator->loop_->Bind(coordinator->endpoint_));
  coordinator->thread_ = std::thread([loop = coordinator->loop_.get()] {
    pthread_setname_np(pthread_self(), "troupe-coord");
    loop->Run();
  });
  return coordinator;
}

Coordinator::~Coordinator() {
  if (thread_.joinable()) {
    loop_->Stop();
    thread_.join();
  }
}

}  // namespace troupe::runtime
