/// Bytes that are shared by pointer inside a process and travel as frames of their own between processes.
#pragma once

#include <cstddef>
#include <cstring>
#include <memory>
#include <utility>

namespace troupe::runtime {

/// An immutable run of bytes with shared ownership; copying a Buffer copies no bytes.
///
/// Lifetime the bytes live until the last Buffer that shows them is gone.
/// Threads  thread-safe for reading.
class Buffer {
 public:
  Buffer() = default;

  /// `size` bytes, 64-byte aligned, to be filled through `*bytes` before the buffer is shared.
  static Buffer Allocate(size_t size, std::byte** bytes);
  static Buffer Copy(const void* data, size_t size);
  /// Shows bytes that `owner` keeps alive.
  static Buffer Wrap(std::shared_ptr<const void> owner, const void* data, size_t size) {
    Buffer buffer;
    buffer.owner_ = std::move(owner);
    buffer.data_ = static_cast<const std::byte*>(data);
    buffer.size_ = size;
    return buffer;
  }

  const std::byte* data() const { return data_; }
  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }

 private:
  std::shared_ptr<const void> owner_;
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace troupe::runtime
