#include "runtime/control/internal/zmq_socket.h"

#include <unistd.h>
#include <zmq.h>

#include <algorithm>
#include <cerrno>

#include "absl/strings/match.h"
#include "runtime/base/check.h"
#include "runtime/base/status.h"

namespace troupe::runtime::internal {
namespace {

// Control messages are few; more than this wait only for a process that is stopped.
constexpr int kHighWaterMark = 100000;

}  // namespace

ZmqSocket::ZmqSocket(Kind kind) {
  context_ = zmq_ctx_new();
  socket_ = zmq_socket(context_, kind == Kind::kRouter ? ZMQ_ROUTER : ZMQ_DEALER);
  TROUPE_CHECK(socket_ != nullptr) << zmq_strerror(zmq_errno());
  if (kind == Kind::kRouter) {
    SetInt(ZMQ_ROUTER_MANDATORY, 1);
    SetInt(ZMQ_ROUTER_HANDOVER, 1);
  } else {
    constexpr int kReconnectMs = 20;
    constexpr int kReconnectMaxMs = 500;
    SetInt(ZMQ_RECONNECT_IVL, kReconnectMs);
    SetInt(ZMQ_RECONNECT_IVL_MAX, kReconnectMaxMs);
  }
  SetInt(ZMQ_SNDHWM, kHighWaterMark);
  SetInt(ZMQ_RCVHWM, kHighWaterMark);
  SetInt(ZMQ_LINGER, 0);
  // What is longer than any control message is not even received; the connection it came by is closed.
  const int64_t max_bytes = 16 << 20;
  TROUPE_CHECK_EQ(zmq_setsockopt(socket_, ZMQ_MAXMSGSIZE, &max_bytes, sizeof(max_bytes)), 0);
}

ZmqSocket::~ZmqSocket() {
  zmq_close(socket_);
  while (zmq_ctx_term(context_) != 0 && zmq_errno() == EINTR) {
  }
}

void ZmqSocket::SetInt(int option, int value) {
  TROUPE_CHECK_EQ(zmq_setsockopt(socket_, option, &value, sizeof(value)), 0) << "zmq option " << option;
}

void ZmqSocket::SetRoutingName(const std::string& name) {
  TROUPE_CHECK_EQ(zmq_setsockopt(socket_, ZMQ_ROUTING_ID, name.data(), name.size()), 0) << name;
}

void ZmqSocket::SetLinger(absl::Duration linger) { SetInt(ZMQ_LINGER, static_cast<int>(absl::ToInt64Milliseconds(linger))); }

void ZmqSocket::SetHeartbeats(absl::string_view endpoint) {
  // On one host the kernel tells when a process is gone, and one that is only stopped must stay connected.
  if (!absl::StartsWith(endpoint, "tcp://")) return;
  constexpr int kIntervalMs = 500;
  constexpr int kTimeoutMs = 3000;
  SetInt(ZMQ_HEARTBEAT_IVL, kIntervalMs);
  SetInt(ZMQ_HEARTBEAT_TIMEOUT, kTimeoutMs);
  SetInt(ZMQ_HEARTBEAT_TTL, kTimeoutMs);
}

absl::Status ZmqSocket::Bind(const std::string& endpoint) {
  SetHeartbeats(endpoint);
  if (absl::StartsWith(endpoint, "ipc://")) {
    const uid_t user = geteuid();
    TROUPE_CHECK_EQ(zmq_setsockopt(socket_, ZMQ_IPC_FILTER_UID, &user, sizeof(user)), 0);
  }
  if (zmq_bind(socket_, endpoint.c_str()) != 0) {
    return absl::UnavailableError(absl::StrCat("cannot listen on ", endpoint, ": ", zmq_strerror(zmq_errno())));
  }
  return absl::OkStatus();
}

absl::Status ZmqSocket::Connect(const std::string& endpoint) {
  SetHeartbeats(endpoint);
  if (zmq_connect(socket_, endpoint.c_str()) != 0) {
    return absl::UnavailableError(absl::StrCat("cannot connect to ", endpoint, ": ", zmq_strerror(zmq_errno())));
  }
  return absl::OkStatus();
}

absl::Status ZmqSocket::Send(const std::vector<absl::string_view>& parts) {
  for (size_t i = 0; i < parts.size(); ++i) {
    const int flags = ZMQ_DONTWAIT | (i + 1 < parts.size() ? ZMQ_SNDMORE : 0);
    int result;
    do {
      result = zmq_send(socket_, parts[i].data(), parts[i].size(), flags);
    } while (result < 0 && zmq_errno() == EINTR);
    if (result >= 0) continue;
    if (zmq_errno() == EAGAIN) return absl::ResourceExhaustedError("too many messages wait");
    return absl::UnavailableError(zmq_strerror(zmq_errno()));
  }
  return absl::OkStatus();
}

bool ZmqSocket::Receive(std::vector<std::string>* parts, size_t max_bytes) {
  parts->clear();
  bool more = true;
  while (more) {
    zmq_msg_t part;
    zmq_msg_init(&part);
    int result;
    do {
      result = zmq_msg_recv(&part, socket_, ZMQ_DONTWAIT);
    } while (result < 0 && zmq_errno() == EINTR);
    if (result < 0) {
      zmq_msg_close(&part);
      return false;
    }
    more = zmq_msg_more(&part) != 0;
    constexpr size_t kMaxParts = 8;
    if (parts->size() < kMaxParts) {
      parts->emplace_back(static_cast<const char*>(zmq_msg_data(&part)), std::min(zmq_msg_size(&part), max_bytes + 1));
    }
    zmq_msg_close(&part);
  }
  return true;
}

void ZmqSocket::Wait(int wake_fd, absl::Duration timeout) {
  zmq_pollitem_t items[] = {{socket_, 0, ZMQ_POLLIN, 0}, {nullptr, wake_fd, ZMQ_POLLIN, 0}};
  // Rounded up: a timer that is almost due must not spin.
  const auto wait_ms = timeout == absl::InfiniteDuration()
                           ? -1
                           : static_cast<long>(absl::ToInt64Milliseconds(absl::Ceil(std::max(timeout, absl::ZeroDuration()),
                                                                                    absl::Milliseconds(1))));
  zmq_poll(items, 2, wait_ms);
}

}  // namespace troupe::runtime::internal
