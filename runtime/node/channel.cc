#include "runtime/node/channel.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/check.h"
#include "runtime/msg/error_chain.h"
#include "runtime/node/node.h"

namespace troupe::runtime {
namespace {

uint64_t PackRanks(int from, int to) {
  return (static_cast<uint64_t>(static_cast<uint32_t>(from)) << 32) | static_cast<uint32_t>(to);
}

}  // namespace

NodeChannel::NodeChannel(Node* node, ChannelDescription description, int rank)
    : node_(node),
      description_(std::move(description)),
      rank_(rank),
      inbox_(node->channels().Find(description_.number, rank)) {
  inbox_->Open(description_);
  epoch_ = inbox_->epoch();
  // A member may have died before this one listened.
  for (const ChannelMember& member : description_.members) {
    const absl::Status why = node_->DownReason(member.node);
    if (!why.ok()) inbox_->MemberDown(member, why);
  }
}

NodeChannel::~NodeChannel() { node_->channels().Close(description_.number, rank_); }

absl::Status NodeChannel::Send(int to, uint64_t tag, Buffer data) {
  TROUPE_CHECK_GE(to, 0);
  TROUPE_CHECK_LT(to, size());
  const uint32_t epoch = epoch_;
  const absl::Status broken = inbox_->revoked(epoch);
  if (!broken.ok()) return broken;
  if (to == rank_) {
    inbox_->Push(epoch, rank_, tag, Aligned(data));
    return absl::OkStatus();
  }
  const ChannelMember& member = description_.members[static_cast<size_t>(to)];
  Message message;
  message.envelope.kind = MessageKind::kChannel;
  message.envelope.receiver_node = member.node;
  message.envelope.actor = description_.number;
  message.envelope.session = tag;
  message.envelope.sequence = PackRanks(rank_, to);
  message.envelope.method = epoch;
  message.frames.push_back(std::move(data));
  // A member that is about to be started again must not get what was meant for the one before: never wait for it.
  const absl::Status sent = node_->Post(std::move(message), /*wait_for_node=*/false);
  if (sent.ok()) return sent;
  return absl::Status(sent.code(),
                      absl::StrCat(description_.name, ": rank ", to, " (host ", member.host, "): ", sent.message()));
}

absl::StatusOr<Buffer> NodeChannel::Receive(int from, uint64_t tag, absl::Time deadline) {
  TROUPE_CHECK_GE(from, 0);
  TROUPE_CHECK_LT(from, size());
  return inbox_->Pop(epoch_, from, tag, deadline);
}

void NodeChannel::Revoke(const absl::Status& why) {
  const uint32_t epoch = epoch_;
  if (!inbox_->Revoke(epoch, why)) return;
  for (const ChannelMember& member : description_.members) {
    if (member.rank == rank_) continue;
    Message message;
    message.envelope.kind = MessageKind::kChannelRevoke;
    message.envelope.receiver_node = member.node;
    message.envelope.actor = description_.number;
    message.envelope.sequence = PackRanks(rank_, member.rank);
    message.envelope.method = epoch;
    message.body = EncodeStatus(why);
    (void)node_->Post(std::move(message), /*wait_for_node=*/false);
  }
}

absl::Status NodeChannel::revoked() const { return inbox_->revoked(epoch_); }

void NodeChannel::Rejoin() { epoch_ = inbox_->epoch(); }

std::shared_ptr<ChannelInbox> ChannelHub::Find(uint64_t channel, int rank) {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::shared_ptr<ChannelInbox>& inbox = inboxes_[{channel, rank}];
  if (inbox == nullptr) inbox = std::make_shared<ChannelInbox>(scheduler_);
  return inbox;
}

void ChannelHub::Close(uint64_t channel, int rank) {
  const std::lock_guard<std::mutex> lock(mutex_);
  inboxes_.erase({channel, rank});
}

void ChannelHub::Deliver(Message message) {
  const Envelope& envelope = message.envelope;
  if (message.frames.size() != 1) return;
  const int from = static_cast<int>(envelope.sequence >> 32);
  const int to = static_cast<int>(envelope.sequence & 0xffffffff);
  Find(envelope.actor, to)->Push(envelope.method, from, envelope.session, std::move(message.frames[0]));
}

void ChannelHub::Revoke(const Message& message) {
  absl::Status why;
  if (!DecodeStatus(message.body, &why).ok() || why.ok()) return;
  const int to = static_cast<int>(message.envelope.sequence & 0xffffffff);
  Find(message.envelope.actor, to)->Revoke(message.envelope.method, why);
}

void ChannelHub::Reset(uint64_t channel, uint32_t epoch) {
  std::vector<std::shared_ptr<ChannelInbox>> inboxes;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (const auto& [key, inbox] : inboxes_) {
      if (key.first == channel) inboxes.push_back(inbox);
    }
  }
  for (const auto& inbox : inboxes) inbox->Reset(epoch);
}

void ChannelHub::NodeDown(const NodeAddress& node, const absl::Status& why) {
  std::vector<std::shared_ptr<ChannelInbox>> inboxes;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (const auto& [key, inbox] : inboxes_) inboxes.push_back(inbox);
  }
  for (const auto& inbox : inboxes) inbox->NodeDown(node, why);
}

void ChannelHub::RevokeAll(const absl::Status& why) {
  std::vector<std::shared_ptr<ChannelInbox>> inboxes;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (const auto& [key, inbox] : inboxes_) inboxes.push_back(inbox);
  }
  for (const auto& inbox : inboxes) inbox->Revoke(inbox->epoch(), why);
}

void ChannelInbox::Open(const ChannelDescription& description) {
  const std::lock_guard<std::mutex> lock(mutex_);
  open_ = true;
  description_ = description;
  epoch_ = std::max(epoch_, description.epoch);
}

void ChannelInbox::Push(uint32_t epoch, int from, uint64_t tag, Buffer data) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (epoch < epoch_) return;  // of the time before a member was started again
  messages_[{epoch, from, tag}].push_back(std::move(data));
  changed_->NotifyAll();
}

absl::Status ChannelInbox::Why(uint32_t epoch) const {
  if (epoch < epoch_) return absl::AbortedError(absl::StrCat(description_.name, ": the group was reset"));
  const auto found = revoked_.find(epoch);
  return found == revoked_.end() ? absl::OkStatus() : found->second;
}

absl::StatusOr<Buffer> ChannelInbox::Pop(uint32_t epoch, int from, uint64_t tag, absl::Time deadline) {
  const Key key(epoch, from, tag);
  std::unique_lock<std::mutex> lock(mutex_);
  const auto what = [from] { return absl::StrCat("a message of rank ", from); };
  const absl::Status waited = WaitUntil(*scheduler_, *changed_, lock, deadline, what,
                                        [&] { return !Why(epoch).ok() || messages_.contains(key); });
  if (!waited.ok()) return absl::Status(waited.code(), absl::StrCat(description_.name, ": ", waited.message()));
  const absl::Status broken = Why(epoch);
  if (!broken.ok()) return broken;
  const auto found = messages_.find(key);
  Buffer data = std::move(found->second.front());
  found->second.pop_front();
  if (found->second.empty()) messages_.erase(found);
  return data;
}

bool ChannelInbox::Revoke(uint32_t epoch, const absl::Status& why) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (epoch < epoch_ || !revoked_.emplace(epoch, why).second) return false;
  changed_->NotifyAll();
  return true;
}

void ChannelInbox::Reset(uint32_t epoch) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (epoch <= epoch_) return;
  epoch_ = epoch;
  revoked_.erase(revoked_.begin(), revoked_.lower_bound(epoch));
  messages_.erase(messages_.begin(), messages_.lower_bound({epoch, -1, 0}));
  changed_->NotifyAll();
}

void ChannelInbox::MemberDown(const ChannelMember& member, const absl::Status& why) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const absl::Status reason = absl::UnavailableError(
      absl::StrCat(description_.name, ": rank ", member.rank, " (host ", member.host, ") is gone: ", why.message()));
  if (revoked_.emplace(epoch_, reason).second) changed_->NotifyAll();
}

void ChannelInbox::NodeDown(const NodeAddress& node, const absl::Status& why) {
  std::vector<ChannelMember> members;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (open_) members = description_.members;
  }
  for (const ChannelMember& member : members) {
    if (member.node == node.id) return MemberDown(member, why);
  }
}

absl::Status ChannelInbox::revoked(uint32_t epoch) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return Why(epoch);
}

uint32_t ChannelInbox::epoch() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return epoch_;
}

}  // namespace troupe::runtime
