#include "runtime/msg/buffer.h"

#include <new>

namespace troupe::runtime {

Buffer Buffer::Allocate(size_t size, std::byte** bytes) {
  constexpr std::align_val_t kAlignment{64};
  auto* memory = static_cast<std::byte*>(::operator new(size == 0 ? 1 : size, kAlignment));
  *bytes = memory;
  std::shared_ptr<const void> owner(memory, [](const void* p) { ::operator delete(const_cast<void*>(p), kAlignment); });
  return Wrap(std::move(owner), memory, size);
}

Buffer Buffer::Copy(const void* data, size_t size) {
  std::byte* bytes = nullptr;
  Buffer buffer = Allocate(size, &bytes);
  if (size > 0) std::memcpy(bytes, data, size);
  return buffer;
}

}  // namespace troupe::runtime
