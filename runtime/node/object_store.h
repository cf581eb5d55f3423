/// Large results, kept by the node that made them until whoever called is done with them.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>

#include "absl/base/thread_annotations.h"
#include "runtime/msg/message.h"

namespace troupe::runtime {

/// Threads  thread-safe.
class ObjectStore {
 public:
  /// Whose death frees the object.
  struct Owner {
    int32_t node = -1;
    uint32_t incarnation = 0;
  };

  void Put(uint64_t object, Owner owner, Payload payload);
  /// Null when it is not (or no longer) here.
  std::shared_ptr<const Payload> Find(uint64_t object) const;
  void Erase(uint64_t object);
  void EraseOwnedBy(Owner owner);
  size_t count() const;
  size_t bytes() const;

 private:
  struct Entry {
    Owner owner;
    std::shared_ptr<const Payload> payload;
  };

  mutable std::mutex mutex_;
  std::unordered_map<uint64_t, Entry> objects_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace troupe::runtime
