#include "runtime/transport/zmq_transport.h"

#include <sys/eventfd.h>
#include <unistd.h>
#include <zmq.h>

#include <cerrno>
#include <cstring>
#include <deque>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/check.h"
#include "runtime/base/log.h"
#include "runtime/base/status.h"

#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#endif

namespace troupe::runtime {
namespace {

/// libzmq is not built with TSan, which therefore does not see that what is sent happens before what is received or freed.
struct WireOrder {
#if defined(__SANITIZE_THREAD__)
  static void Sent() { __tsan_release(&wire); }
  static void Arrived() { __tsan_acquire(&wire); }
  static inline char wire = 0;
#else
  static void Sent() {}
  static void Arrived() {}
#endif
};

// Below these sizes a copy is cheaper than what zero-copy needs beside the message.
constexpr size_t kZeroCopyFrame = 4096;
constexpr size_t kZeroCopyBody = 16384;
constexpr int kHighWaterMark = 100000;

std::string RoutingId(int32_t node, uint32_t incarnation) { return absl::StrCat("n", node, ":", incarnation); }

void SetInt(void* socket, int option, int value) {
  TROUPE_CHECK_EQ(zmq_setsockopt(socket, option, &value, sizeof(value)), 0) << "zmq option " << option;
}

/// Heartbeats find a host that is gone. On one host the kernel says so itself, and a stopped process must stay connected.
void SetHeartbeats(void* socket, const std::string& endpoint) {
  if (!absl::StartsWith(endpoint, "tcp://")) return;
  constexpr int kIntervalMs = 1000;
  constexpr int kTimeoutMs = 10000;
  SetInt(socket, ZMQ_HEARTBEAT_IVL, kIntervalMs);
  SetInt(socket, ZMQ_HEARTBEAT_TIMEOUT, kTimeoutMs);
  SetInt(socket, ZMQ_HEARTBEAT_TTL, kTimeoutMs);
}

void FreeBuffer(void*, void* hint) {
  WireOrder::Arrived();
  delete static_cast<Buffer*>(hint);
}
void FreeString(void*, void* hint) {
  WireOrder::Arrived();
  delete static_cast<std::string*>(hint);
}

void MakePart(zmq_msg_t* part, const void* data, size_t size) {
  TROUPE_CHECK_EQ(zmq_msg_init_size(part, size), 0);
  if (size > 0) std::memcpy(zmq_msg_data(part), data, size);
}

void MakeBody(zmq_msg_t* part, std::string body) {
  if (body.size() < kZeroCopyBody) return MakePart(part, body.data(), body.size());
  auto* held = new std::string(std::move(body));
  TROUPE_CHECK_EQ(zmq_msg_init_data(part, held->data(), held->size(), &FreeString, held), 0);
}

void MakeFrame(zmq_msg_t* part, const Buffer& frame) {
  if (frame.size() < kZeroCopyFrame) return MakePart(part, frame.data(), frame.size());
  auto* held = new Buffer(frame);
  auto* data = const_cast<std::byte*>(held->data());
  TROUPE_CHECK_EQ(zmq_msg_init_data(part, data, held->size(), &FreeBuffer, held), 0);
}

/// Takes the bytes of a received part; large ones that happen to be aligned are not copied.
Buffer TakeFrame(zmq_msg_t* part) {
  const size_t size = zmq_msg_size(part);
  if (size < kZeroCopyFrame || reinterpret_cast<uintptr_t>(zmq_msg_data(part)) % 64 != 0) {
    return Buffer::Copy(zmq_msg_data(part), size);
  }
  auto held = std::shared_ptr<zmq_msg_t>(new zmq_msg_t, [](zmq_msg_t* message) {
    zmq_msg_close(message);
    delete message;
  });
  zmq_msg_init(held.get());
  zmq_msg_move(held.get(), part);
  const void* data = zmq_msg_data(held.get());
  return Buffer::Wrap(std::move(held), data, size);
}

}  // namespace

struct ZmqTransport::Peer {
  NodeAddress address;
  std::atomic<size_t> waiting{0};
  // Only the I/O thread looks at what follows.
  void* socket = nullptr;
  std::deque<Message> backlog;
  bool gone = false;
};

struct ZmqTransport::Command {
  enum class Kind { kSend, kDisconnect, kStart, kClose };
  Kind kind = Kind::kSend;
  std::shared_ptr<Peer> peer;
  Message message;
  Handler handler;
};

/// Everything that the I/O thread owns.
class ZmqTransport::Loop {
 public:
  Loop(ZmqTransport* owner, const ZmqTransportOptions& options) : owner_(owner), options_(options) {}
  ~Loop() { CloseSockets(); }

  absl::StatusOr<std::string> Bind() {
    context_ = zmq_ctx_new();
    router_ = zmq_socket(context_, ZMQ_ROUTER);
    TROUPE_CHECK(router_ != nullptr) << zmq_strerror(zmq_errno());
    SetInt(router_, ZMQ_ROUTER_MANDATORY, 1);
    SetInt(router_, ZMQ_ROUTER_HANDOVER, 1);
    SetInt(router_, ZMQ_RCVHWM, kHighWaterMark);
    SetInt(router_, ZMQ_LINGER, 0);  // it never sends
    SetHeartbeats(router_, options_.endpoint);
    if (absl::StartsWith(options_.endpoint, "ipc://")) {
      const uid_t user = geteuid();
      TROUPE_CHECK_EQ(zmq_setsockopt(router_, ZMQ_IPC_FILTER_UID, &user, sizeof(user)), 0);
    }
    if (zmq_bind(router_, options_.endpoint.c_str()) != 0) {
      return absl::UnavailableError(
          absl::StrCat("cannot listen on ", options_.endpoint, ": ", zmq_strerror(zmq_errno())));
    }
    char bound[512];
    size_t size = sizeof(bound);
    TROUPE_CHECK_EQ(zmq_getsockopt(router_, ZMQ_LAST_ENDPOINT, bound, &size), 0);
    return std::string(bound);
  }

  void Run() {
    while (!closing_) {
      Poll();
      RunCommands();
      Receive();
    }
    CloseSockets();
  }

 private:
  /// Waits until what the sockets hold is sent, or the time to linger is over.
  void CloseSockets() {
    for (const auto& peer : connected_) zmq_close(peer->socket);
    connected_.clear();
    if (router_ != nullptr) zmq_close(router_);
    router_ = nullptr;
    if (context_ != nullptr) zmq_ctx_term(context_);
    context_ = nullptr;
  }

  void Poll() {
    items_.clear();
    items_.push_back({nullptr, owner_->wake_fd_, ZMQ_POLLIN, 0});
    if (handler_) items_.push_back({router_, 0, ZMQ_POLLIN, 0});
    for (const auto& peer : connected_) {
      if (!peer->backlog.empty()) items_.push_back({peer->socket, 0, ZMQ_POLLOUT, 0});
    }
    zmq_poll(items_.data(), static_cast<int>(items_.size()), -1);
    if ((items_[0].revents & ZMQ_POLLIN) != 0) {
      uint64_t count = 0;
      (void)!read(owner_->wake_fd_, &count, sizeof(count));
    }
    for (const auto& peer : connected_) Flush(*peer);
  }

  void RunCommands() {
    {
      const std::lock_guard<std::mutex> lock(owner_->mutex_);
      batch_.swap(owner_->commands_);
    }
    for (Command& command : batch_) {
      switch (command.kind) {
        case Command::Kind::kStart:
          handler_ = std::move(command.handler);
          break;
        case Command::Kind::kClose:
          closing_ = true;
          break;
        case Command::Kind::kDisconnect:
          Drop(command.peer);
          break;
        case Command::Kind::kSend: {
          Peer& peer = *command.peer;
          if (peer.gone) break;
          if (peer.socket == nullptr) Open(command.peer);
          if (!peer.backlog.empty() || !TrySend(peer, command.message))
            peer.backlog.push_back(std::move(command.message));
          break;
        }
      }
    }
    batch_.clear();
  }

  void Open(const std::shared_ptr<Peer>& peer) {
    peer->socket = zmq_socket(context_, ZMQ_DEALER);
    TROUPE_CHECK(peer->socket != nullptr) << zmq_strerror(zmq_errno());
    const std::string id = RoutingId(options_.node, options_.incarnation);
    TROUPE_CHECK_EQ(zmq_setsockopt(peer->socket, ZMQ_ROUTING_ID, id.data(), id.size()), 0);
    SetInt(peer->socket, ZMQ_SNDHWM, kHighWaterMark);
    SetInt(peer->socket, ZMQ_LINGER, static_cast<int>(absl::ToInt64Milliseconds(options_.linger)));
    constexpr int kReconnectMs = 20;
    constexpr int kReconnectMaxMs = 1000;
    SetInt(peer->socket, ZMQ_RECONNECT_IVL, kReconnectMs);
    SetInt(peer->socket, ZMQ_RECONNECT_IVL_MAX, kReconnectMaxMs);
    SetHeartbeats(peer->socket, peer->address.endpoint);
    if (zmq_connect(peer->socket, peer->address.endpoint.c_str()) != 0) {
      LogError("cannot connect to node ", peer->address.id, " at ", peer->address.endpoint, ": ",
               zmq_strerror(zmq_errno()));
    }
    connected_.push_back(peer);
  }

  void Drop(const std::shared_ptr<Peer>& peer) {
    peer->gone = true;
    peer->backlog.clear();
    if (peer->socket == nullptr) return;
    SetInt(peer->socket, ZMQ_LINGER, 0);
    zmq_close(peer->socket);
    peer->socket = nullptr;
    std::erase(connected_, peer);
  }

  void Flush(Peer& peer) {
    while (!peer.backlog.empty() && TrySend(peer, peer.backlog.front())) peer.backlog.pop_front();
  }

  /// False when the socket is full: the message is untouched then.
  bool TrySend(Peer& peer, Message& message) {
    zmq_msg_t part;
    const bool more_parts = true;
    MakePart(&part, &message.envelope, sizeof(Envelope));
    if (!SendPart(peer, &part, more_parts)) {
      zmq_msg_close(&part);
      return false;
    }
    MakeBody(&part, std::move(message.body));
    bool sent = SendPart(peer, &part, !message.frames.empty());
    for (size_t i = 0; sent && i < message.frames.size(); ++i) {
      MakeFrame(&part, message.frames[i]);
      sent = SendPart(peer, &part, i + 1 < message.frames.size());
    }
    // After its first part a message is only refused when the connection went in between: it is lost like one in flight.
    if (!sent) zmq_msg_close(&part);
    peer.waiting.fetch_sub(1, std::memory_order_relaxed);
    return true;
  }

  static bool SendPart(Peer& peer, zmq_msg_t* part, bool more) {
    WireOrder::Sent();
    int result;
    do {
      result = zmq_msg_send(part, peer.socket, ZMQ_DONTWAIT | (more ? ZMQ_SNDMORE : 0));
    } while (result < 0 && zmq_errno() == EINTR);
    return result >= 0;
  }

  void Receive() {
    if (!handler_) return;
    // Bounded, so that a flood of messages does not keep ours from being sent.
    constexpr int kBatch = 256;
    for (int i = 0; i < kBatch && ReceiveOne(); ++i) {
    }
  }

  bool ReceiveOne() {
    zmq_msg_t part;
    zmq_msg_init(&part);
    int result;
    do {
      result = zmq_msg_recv(&part, router_, ZMQ_DONTWAIT);
    } while (result < 0 && zmq_errno() == EINTR);
    if (result < 0) {
      zmq_msg_close(&part);
      return false;
    }
    const std::string sender(static_cast<const char*>(zmq_msg_data(&part)), zmq_msg_size(&part));
    WireOrder::Arrived();
    absl::StatusOr<Message> message = TakeMessage(&part);
    zmq_msg_close(&part);
    if (message.ok() && RoutingId(message->envelope.sender_node, message->envelope.sender_incarnation) != sender) {
      message = absl::InvalidArgumentError(absl::StrCat("message: says it is from node ", message->envelope.sender_node,
                                                        " incarnation ", message->envelope.sender_incarnation));
    }
    if (message.ok()) {
      handler_(*std::move(message));
    } else {
      LogWarning("a message from ", sender, " was refused: ", message.status().message());
    }
    return true;
  }

  /// Reads the parts after the sender's name; always to the end of the message.
  absl::StatusOr<Message> TakeMessage(zmq_msg_t* part) {
    absl::StatusOr<Envelope> envelope = absl::InvalidArgumentError("message: no envelope");
    std::string body;
    std::vector<Buffer> frames;
    size_t count = 0;
    uint64_t bytes = 0;
    for (; zmq_msg_more(part) != 0; ++count) {
      if (zmq_msg_recv(part, router_, 0) < 0) return absl::UnavailableError(zmq_strerror(zmq_errno()));
      const absl::string_view view(static_cast<const char*>(zmq_msg_data(part)), zmq_msg_size(part));
      bytes += view.size();
      if (count == 0) {
        envelope = ParseEnvelope(view, options_.limits);
      } else if (!envelope.ok() || bytes > options_.limits.body_bytes + options_.limits.frame_bytes) {
        continue;  // already refused
      } else if (count == 1) {
        if (view.size() <= options_.limits.body_bytes) body.assign(view.data(), view.size());
      } else if (frames.size() < envelope->frame_count) {
        frames.push_back(TakeFrame(part));
      } else {
        envelope = absl::InvalidArgumentError(
            absl::StrCat("message: more than the ", envelope->frame_count, " frames that the envelope says"));
      }
    }
    TROUPE_RETURN_IF_ERROR(envelope.status());
    if (count < 2) return absl::InvalidArgumentError("message: no body");
    return AssembleMessage(*envelope, std::move(body), std::move(frames), options_.limits);
  }

  ZmqTransport* const owner_;
  const ZmqTransportOptions options_;
  void* context_ = nullptr;
  void* router_ = nullptr;
  Handler handler_;
  bool closing_ = false;
  std::vector<std::shared_ptr<Peer>> connected_;
  std::vector<Command> batch_;
  std::vector<zmq_pollitem_t> items_;
};

absl::StatusOr<std::unique_ptr<ZmqTransport>> ZmqTransport::Create(const ZmqTransportOptions& options) {
  auto transport = std::unique_ptr<ZmqTransport>(new ZmqTransport());
  transport->max_waiting_messages_ = options.max_waiting_messages;
  transport->wake_fd_ = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  if (transport->wake_fd_ < 0) return absl::ResourceExhaustedError(absl::StrCat("eventfd: ", std::strerror(errno)));
  transport->loop_ = std::make_unique<Loop>(transport.get(), options);
  TROUPE_ASSIGN_OR_RETURN(transport->endpoint_, transport->loop_->Bind());
  transport->thread_ = std::thread([loop = transport->loop_.get()] {
    pthread_setname_np(pthread_self(), "troupe-io");
    loop->Run();
  });
  return transport;
}

ZmqTransport::~ZmqTransport() {
  Close();
  loop_.reset();
  if (wake_fd_ >= 0) close(wake_fd_);
}

absl::Status ZmqTransport::Push(Command command) {
  bool wake = false;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (closed_) return absl::UnavailableError("the transport is closed");
    closed_ = command.kind == Command::Kind::kClose;
    wake = commands_.empty();
    commands_.push_back(std::move(command));
  }
  if (wake) {
    const uint64_t one = 1;
    (void)!write(wake_fd_, &one, sizeof(one));
  }
  return absl::OkStatus();
}

void ZmqTransport::Start(Handler handler) {
  Command command;
  command.kind = Command::Kind::kStart;
  command.handler = std::move(handler);
  (void)Push(std::move(command));
}

absl::Status ZmqTransport::Send(const NodeAddress& peer, Message message) {
  Command command;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    std::shared_ptr<Peer>& known = peers_[{peer.id, peer.incarnation}];
    if (known == nullptr) {
      known = std::make_shared<Peer>();
      known->address = peer;
    }
    command.peer = known;
  }
  if (command.peer->waiting.fetch_add(1, std::memory_order_relaxed) >= max_waiting_messages_) {
    command.peer->waiting.fetch_sub(1, std::memory_order_relaxed);
    return absl::ResourceExhaustedError(
        absl::StrCat(max_waiting_messages_, " messages wait for node ", peer.id, " already"));
  }
  message.envelope.body_length = message.body.size();
  message.envelope.frame_count = static_cast<uint32_t>(message.frames.size());
  command.message = std::move(message);
  return Push(std::move(command));
}

void ZmqTransport::Disconnect(const NodeAddress& peer) {
  Command command;
  command.kind = Command::Kind::kDisconnect;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = peers_.find({peer.id, peer.incarnation});
    if (found == peers_.end()) return;
    command.peer = found->second;
    peers_.erase(found);
  }
  (void)Push(std::move(command));
}

void ZmqTransport::Close() {
  Command command;
  command.kind = Command::Kind::kClose;
  (void)Push(std::move(command));
  if (thread_.joinable()) thread_.join();
}

}  // namespace troupe::runtime
