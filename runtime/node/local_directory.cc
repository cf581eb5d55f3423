#include "runtime/node/local_directory.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"

namespace troupe::runtime {

void LocalRegistry::Join(const NodeAddress& address, Directory::Listener* listener) {
  std::vector<Member> others;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (const auto& [node, member] : members_) {
      if (node != address.id) others.push_back(member);
    }
    members_[address.id] = {address, listener};
    changed_->NotifyAll();
  }
  // Without the lock: what listeners do may ask the directory.
  for (const Member& other : others) listener->OnNodeUp(other.address);
  for (const Member& other : others) other.listener->OnNodeUp(address);
}

void LocalRegistry::Leave(const NodeAddress& address) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = members_.find(address.id);
  if (found != members_.end() && found->second.address.incarnation == address.incarnation) members_.erase(found);
}

void LocalRegistry::KillNode(int32_t node, const absl::Status& why) {
  std::vector<Member> others;
  NodeAddress dead;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = members_.find(node);
    if (found == members_.end()) return;
    dead = found->second.address;
    members_.erase(found);
    for (const auto& [id, member] : members_) others.push_back(member);
  }
  for (const Member& other : others) other.listener->OnNodeDown(dead, why);
}

void LocalRegistry::Shutdown(const absl::Status& why) {
  std::vector<Member> all;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (const auto& [id, member] : members_) all.push_back(member);
  }
  for (const Member& member : all) member.listener->OnShutdown(why);
}

absl::StatusOr<std::vector<NodeAddress>> LocalDirectory::WaitForWorkers(int count, absl::Time deadline) {
  std::vector<NodeAddress> workers;
  std::unique_lock<std::mutex> lock(registry_->mutex_);
  const auto all = [&] {
    workers.clear();
    for (const auto& [node, member] : registry_->members_) {
      if (member.address.rank >= 0 && member.address.rank < count) workers.push_back(member.address);
    }
    return static_cast<int>(workers.size()) == count;
  };
  const auto what = [&] { return absl::StrCat(count, " workers"); };
  TROUPE_RETURN_IF_ERROR(WaitUntil(*registry_->scheduler_, *registry_->changed_, lock, deadline, what, all));
  return workers;
}

absl::Status LocalDirectory::RegisterName(const std::string& name, const ActorAddress& actor) {
  const std::lock_guard<std::mutex> lock(registry_->mutex_);
  const auto [known, fresh] = registry_->names_.emplace(name, actor);
  if (!fresh) {
    const bool same = known->second.node == actor.node && known->second.actor == actor.actor;
    const bool alive = registry_->members_.contains(known->second.node);
    if (!same && alive) {
      return absl::AlreadyExistsError(
          absl::StrCat("an actor is called ", name, " already, on node ", known->second.node));
    }
    known->second = actor;
  }
  registry_->changed_->NotifyAll();
  return absl::OkStatus();
}

absl::StatusOr<ActorAddress> LocalDirectory::LookUpName(const std::string& name, absl::Time deadline) {
  std::unique_lock<std::mutex> lock(registry_->mutex_);
  const auto what = [&] { return absl::StrCat("an actor called ", name); };
  const absl::Status waited = WaitUntil(*registry_->scheduler_, *registry_->changed_, lock, deadline, what,
                                        [&] { return registry_->names_.contains(name); });
  if (!waited.ok()) return absl::NotFoundError(absl::StrCat("no actor is called ", name, ": ", waited.message()));
  return registry_->names_[name];
}

absl::Status LocalDirectory::RemoveName(const std::string& name) {
  const std::lock_guard<std::mutex> lock(registry_->mutex_);
  if (registry_->names_.erase(name) == 0) return absl::NotFoundError(absl::StrCat("no actor is called ", name));
  return absl::OkStatus();
}

absl::Status LocalDirectory::SetMaxRestarts(int32_t node, int max_restarts) {
  const std::lock_guard<std::mutex> lock(registry_->mutex_);
  registry_->max_restarts_[node] = max_restarts;
  return absl::OkStatus();
}

}  // namespace troupe::runtime
