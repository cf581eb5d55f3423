#include "runtime/control/internal/connection.h"

#include <pthread.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/match.h"
#include "runtime/base/log.h"
#include "runtime/base/status.h"
#include "runtime/control/internal/wire.h"
#include "runtime/control/internal/zmq_socket.h"

namespace troupe::runtime::internal {
namespace {

using Clock = std::chrono::steady_clock;
constexpr absl::Duration kLongestWait = absl::Hours(24 * 365);

}  // namespace

class Connection::Core : public std::enable_shared_from_this<Connection::Core> {
 public:
  Core(const ConnectionOptions& options, Handler on_message, LostHandler on_lost)
      : options_(options),
        leased_(absl::StartsWith(options.coordinator, "tcp://")),
        on_message_(std::move(on_message)),
        on_lost_(std::move(on_lost)),
        socket_(ZmqSocket::Kind::kDealer) {}

  ~Core() {
    if (wake_fd_ >= 0) close(wake_fd_);
  }

  absl::Status Start() {
    wake_fd_ = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (wake_fd_ < 0) return absl::ResourceExhaustedError(absl::StrCat("eventfd: ", std::strerror(errno)));
    socket_.SetRoutingName(options_.name);
    socket_.SetLinger(options_.linger);
    TROUPE_RETURN_IF_ERROR(socket_.Connect(options_.coordinator));
    // The thread keeps all of this alive, so that the connection may be destroyed by its own callback.
    thread_ = std::thread([self = shared_from_this()] {
      pthread_setname_np(pthread_self(), "troupe-control");
      self->Run();
    });
    return absl::OkStatus();
  }

  void Stop() {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      closing_ = true;
    }
    Wake();
    if (OnOwnThread()) {
      stopped_by_itself_ = true;
      thread_.detach();
    } else {
      thread_.join();
    }
  }

  void Send(control::Message message) {
    message.set_job_epoch(options_.job_epoch != 0 ? options_.job_epoch : message.job_epoch());
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      outgoing_.push_back(std::move(message));
    }
    Wake();
  }

  size_t waiting() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return outgoing_.size();
  }

  absl::StatusOr<control::Answer> Ask(control::Message question, absl::Duration timeout) {
    const std::string kind = KindOf(question);
    if (OnOwnThread()) {
      return absl::FailedPreconditionError(absl::StrCat("the coordinator was asked (", kind, ") by the thread that hears it"));
    }
    std::unique_lock<std::mutex> lock(mutex_);
    if (lost_.has_value()) return *lost_;
    const uint64_t number = ++last_request_;
    question.set_request(number);
    question.set_job_epoch(options_.job_epoch != 0 ? options_.job_epoch : question.job_epoch());
    outgoing_.push_back(std::move(question));
    std::optional<control::Answer>& answer = answers_[number];
    Wake();
    const auto there = [&] { return answer.has_value() || lost_.has_value(); };
    // The standard library adds to a clock, which overflows for what means "for ever".
    const absl::Duration bounded = std::min(timeout, kLongestWait);
    const bool in_time = answered_.wait_for(lock, absl::ToChronoNanoseconds(bounded), there);
    std::optional<control::Answer> got = std::move(answer);
    answers_.erase(number);
    if (got.has_value()) {
      TROUPE_RETURN_IF_ERROR(FromControl(got->status()));
      return *std::move(got);
    }
    if (in_time) return *lost_;
    return absl::DeadlineExceededError(absl::StrCat("the coordinator at ", options_.coordinator, " did not answer ", kind,
                                                    " within ", absl::FormatDuration(timeout)));
  }

  void RunAndWait(std::function<void()> work) {
    if (OnOwnThread()) return work();
    std::unique_lock<std::mutex> lock(mutex_);
    bool done = false;
    work_.push_back([&] {
      work();
      const std::lock_guard<std::mutex> relock(mutex_);
      done = true;
      answered_.notify_all();
    });
    Wake();
    answered_.wait(lock, [&] { return done; });
  }

 private:
  bool OnOwnThread() const { return own_thread_.load() == std::this_thread::get_id(); }

  void Wake() {
    const uint64_t one = 1;
    (void)!write(wake_fd_, &one, sizeof(one));
  }

  void Run() {
    own_thread_ = std::this_thread::get_id();
    Clock::time_point next_heartbeat = Clock::now() + absl::ToChronoNanoseconds(options_.heartbeat);
    last_heard_ = Clock::now();
    while (true) {
      socket_.Wait(wake_fd_, absl::FromChrono(next_heartbeat - Clock::now()));
      uint64_t count = 0;
      (void)!read(wake_fd_, &count, sizeof(count));
      const bool closing = RunWorkAndSend();
      if (stopped_by_itself_) return;
      if (closing) break;
      Receive();
      if (stopped_by_itself_) return;
      const Clock::time_point now = Clock::now();
      if (now < next_heartbeat) continue;
      // A thread that did not run for long (the process was stopped) has heard nothing, which says nothing about the coordinator.
      const bool late = now > next_heartbeat + absl::ToChronoNanoseconds(options_.heartbeat);
      if (late) last_heard_ = now;
      next_heartbeat = now + absl::ToChronoNanoseconds(options_.heartbeat);
      Beat(now);
    }
    Lose(absl::CancelledError("the connection to the coordinator was closed"), /*tell=*/false);
  }

  /// True when the connection is to close, and everything was sent.
  bool RunWorkAndSend() {
    std::deque<std::function<void()>> work;
    std::deque<control::Message> messages;
    bool closing;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      work.swap(work_);
      messages.swap(outgoing_);
      closing = closing_;
    }
    for (const auto& each : work) each();
    for (const control::Message& message : messages) {
      const std::string bytes = EncodeControl(message);
      const absl::Status sent = bytes.size() <= kMaxControlBytes
                                    ? socket_.Send({bytes})
                                    : absl::ResourceExhaustedError(absl::StrCat(bytes.size(), " bytes"));
      if (!sent.ok()) LogError("cannot send ", KindOf(message), " to the coordinator: ", std::string(sent.message()));
    }
    return closing;
  }

  void Receive() {
    std::vector<std::string> parts;
    while (!stopped_by_itself_ && socket_.Receive(&parts, kMaxControlBytes)) {
      last_heard_ = Clock::now();
      const absl::StatusOr<control::Message> message =
          parts.size() == 1 ? ParseControl(parts[0])
                            : absl::InvalidArgumentError(absl::StrCat("control message: of ", parts.size(), " parts"));
      if (!message.ok()) {
        LogError("a message of the coordinator was refused: ", std::string(message.status().message()));
      } else if (message->has_answer()) {
        const std::lock_guard<std::mutex> lock(mutex_);
        const auto asked = answers_.find(message->request());
        if (asked != answers_.end()) asked->second = message->answer();
        answered_.notify_all();
      } else if (!message->has_heartbeat()) {
        on_message_(*message);
      }
    }
  }

  void Beat(Clock::time_point now) {
    const absl::Duration silence = absl::FromChrono(now - last_heard_);
    if (leased_ && silence > options_.lease) {
      Lose(absl::UnavailableError(absl::StrCat("the coordinator at ", options_.coordinator, " has been silent for ",
                                               absl::FormatDuration(silence))),
           /*tell=*/true);
    }
    control::Message message;
    message.set_job_epoch(options_.job_epoch);
    message.mutable_heartbeat()->set_sequence(++heartbeats_);
    // Nobody needs it when it cannot be sent: silence is what tells.
    (void)socket_.Send({EncodeControl(message)});
  }

  void Lose(const absl::Status& why, bool tell) {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (lost_.has_value()) return;
      lost_ = why;
      answered_.notify_all();
    }
    if (tell && on_lost_) on_lost_(why);
  }

  const ConnectionOptions options_;
  const bool leased_;
  const Handler on_message_;
  const LostHandler on_lost_;
  int wake_fd_ = -1;
  std::thread thread_;
  std::atomic<std::thread::id> own_thread_{};
  std::atomic<bool> stopped_by_itself_{false};
  // The thread's own.
  ZmqSocket socket_;
  Clock::time_point last_heard_;
  uint64_t heartbeats_ = 0;

  mutable std::mutex mutex_;
  std::condition_variable answered_;
  bool closing_ ABSL_GUARDED_BY(mutex_) = false;
  uint64_t last_request_ ABSL_GUARDED_BY(mutex_) = 0;
  std::optional<absl::Status> lost_ ABSL_GUARDED_BY(mutex_);
  std::deque<control::Message> outgoing_ ABSL_GUARDED_BY(mutex_);
  std::deque<std::function<void()>> work_ ABSL_GUARDED_BY(mutex_);
  std::map<uint64_t, std::optional<control::Answer>> answers_ ABSL_GUARDED_BY(mutex_);
};

absl::StatusOr<std::unique_ptr<Connection>> Connection::Open(const ConnectionOptions& options, Handler on_message,
                                                             LostHandler on_lost) {
  auto core = std::make_shared<Core>(options, std::move(on_message), std::move(on_lost));
  TROUPE_RETURN_IF_ERROR(core->Start());
  return std::unique_ptr<Connection>(new Connection(std::move(core)));
}

Connection::~Connection() { core_->Stop(); }
void Connection::Send(control::Message message) { core_->Send(std::move(message)); }
size_t Connection::waiting() const { return core_->waiting(); }
absl::StatusOr<control::Answer> Connection::Ask(control::Message question, absl::Duration timeout) {
  return core_->Ask(std::move(question), timeout);
}
void Connection::RunAndWait(std::function<void()> work) { core_->RunAndWait(std::move(work)); }

}  // namespace troupe::runtime::internal
