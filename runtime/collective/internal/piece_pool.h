/// Memory for messages that is used again, because fresh pages cost more than the copy into them.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "runtime/msg/buffer.h"

namespace troupe::runtime::internal {

/// Gives out Buffers whose memory comes back when the last holder lets go, on whichever thread.
///
/// Threads   thread-safe.
/// Lifetime  Buffers may outlive it.
class PiecePool : public std::enable_shared_from_this<PiecePool> {
 public:
  /// At most `max_free_bytes` lie unused; what comes back beyond is freed.
  static std::shared_ptr<PiecePool> Create(size_t max_free_bytes) {
    return std::shared_ptr<PiecePool>(new PiecePool(max_free_bytes));
  }
  ~PiecePool();
  PiecePool(const PiecePool&) = delete;
  PiecePool& operator=(const PiecePool&) = delete;

  /// As Buffer::Allocate, which serves the small ones.
  Buffer Allocate(size_t size, std::byte** bytes);
  size_t free_bytes() const;

 private:
  explicit PiecePool(size_t max_free_bytes) : max_free_bytes_(max_free_bytes) {}
  void GiveBack(std::byte* memory, size_t capacity);

  const size_t max_free_bytes_;
  mutable std::mutex mutex_;
  size_t free_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<size_t, std::vector<std::byte*>> free_ ABSL_GUARDED_BY(mutex_);  // by capacity
};

}  // namespace troupe::runtime::internal
