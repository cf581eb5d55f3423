#include "runtime/node/peers.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace troupe::runtime {

Peers::Decision Peers::Route(Message& message, bool wait) {
  const Envelope& envelope = message.envelope;
  const std::lock_guard<std::mutex> lock(mutex_);
  Peer& peer = peers_[envelope.receiver_node];
  const uint32_t wanted = envelope.receiver_incarnation;
  const uint32_t known = peer.address == nullptr ? 0 : peer.address->incarnation;
  Decision decision;
  if (wanted != 0 && (wanted < known || (wanted == known && peer.state == State::kDown))) {
    decision.why =
        absl::UnavailableError(peer.why.ok() ? absl::StrCat("node ", envelope.receiver_node, " was started again")
                                             : std::string(peer.why.message()));
    return decision;
  }
  if (peer.state == State::kUp && (wanted == 0 || wanted == known)) {
    decision.fate = Fate::kSend;
    decision.address = peer.address;
    return decision;
  }
  if (peer.state == State::kDown && wanted == 0 && !wait) {
    decision.why = peer.why;
    return decision;
  }
  decision.fate = Fate::kParked;
  peer.parked.push_back(std::move(message));
  return decision;
}

uint32_t Peers::Incarnation(int32_t node) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = peers_.find(node);
  return found == peers_.end() || found->second.state != State::kUp ? 0 : found->second.address->incarnation;
}

uint32_t Peers::NewestIncarnation(int32_t node) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = peers_.find(node);
  return found == peers_.end() || found->second.address == nullptr ? 0 : found->second.address->incarnation;
}

std::shared_ptr<const NodeAddress> Peers::Address(int32_t node) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = peers_.find(node);
  return found == peers_.end() ? nullptr : found->second.address;
}

std::vector<std::shared_ptr<const NodeAddress>> Peers::Alive() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::vector<std::shared_ptr<const NodeAddress>> alive;
  for (const auto& [node, peer] : peers_) {
    if (peer.state == State::kUp || peer.state == State::kComing) alive.push_back(peer.address);
  }
  return alive;
}

absl::Status Peers::DownReason(int32_t node) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = peers_.find(node);
  return found == peers_.end() || found->second.state != State::kDown ? absl::OkStatus() : found->second.why;
}

void Peers::BeginUp(const NodeAddress& address) {
  const std::lock_guard<std::mutex> lock(mutex_);
  Peer& peer = peers_[address.id];
  peer.state = State::kComing;
  peer.address = std::make_shared<const NodeAddress>(address);
}

std::vector<Message> Peers::TakeParkedOrFinishUp(int32_t node) {
  const std::lock_guard<std::mutex> lock(mutex_);
  Peer& peer = peers_[node];
  std::vector<Message> parked;
  parked.swap(peer.parked);
  if (parked.empty() && peer.state == State::kComing) peer.state = State::kUp;
  return parked;
}

bool Peers::SetDown(const NodeAddress& address, const absl::Status& why) {
  const std::lock_guard<std::mutex> lock(mutex_);
  Peer& peer = peers_[address.id];
  if (peer.address == nullptr || peer.address->incarnation != address.incarnation || peer.state == State::kDown) {
    return false;
  }
  peer.state = State::kDown;
  peer.why = why.ok() ? absl::UnavailableError(absl::StrCat("node ", address.id, " is down")) : why;
  return true;
}

}  // namespace troupe::runtime
