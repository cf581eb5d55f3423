#include "runtime/node/object_store.h"

#include <utility>

namespace troupe::runtime {

void ObjectStore::Put(uint64_t object, Owner owner, Payload payload) {
  auto shared = std::make_shared<const Payload>(std::move(payload));
  const std::lock_guard<std::mutex> lock(mutex_);
  objects_[object] = {owner, std::move(shared)};
}

std::shared_ptr<const Payload> ObjectStore::Find(uint64_t object) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = objects_.find(object);
  return found == objects_.end() ? nullptr : found->second.payload;
}

void ObjectStore::Erase(uint64_t object) {
  const std::lock_guard<std::mutex> lock(mutex_);
  objects_.erase(object);
}

void ObjectStore::EraseOwnedBy(Owner owner) {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::erase_if(objects_, [&](const auto& entry) {
    return entry.second.owner.node == owner.node && entry.second.owner.incarnation <= owner.incarnation;
  });
}

size_t ObjectStore::count() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return objects_.size();
}

size_t ObjectStore::bytes() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  size_t total = 0;
  for (const auto& [object, entry] : objects_) total += entry.payload->bytes();
  return total;
}

}  // namespace troupe::runtime
