/// Reuses the memory of tensors: pages are touched once and kept, because fresh pages are ten times slower than warm ones.
#pragma once

#include <cstddef>
#include <memory>

namespace troupe::engine {

/// Blocks in size classes (four to a power of two); a block goes back to its class when its last owner is gone.
///
/// Threads  thread-safe.
class MemoryPool {
 public:
  /// 64-byte aligned, uninitialised.
  static std::shared_ptr<std::byte> Allocate(size_t size);
  /// Bytes handed out and not yet given back.
  static size_t BytesInUse();
  /// Gives unused blocks back to the operating system.
  static void Trim();
};

}  // namespace troupe::engine
