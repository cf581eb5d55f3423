#include "runtime/collective/internal/piece_pool.h"

#include <bit>
#include <new>
#include <utility>

namespace troupe::runtime::internal {

namespace {

constexpr std::align_val_t kAlignment{64};
/// The allocator keeps smaller blocks itself, without giving their pages back.
constexpr size_t kLeastPooled = 64 << 10;

/// `size` rounded up by at most an eighth, so that sizes that differ a little share blocks.
size_t Capacity(size_t size) {
  const size_t step = std::bit_floor(size) / 8;
  return (size + step - 1) / step * step;
}

}  // namespace

PiecePool::~PiecePool() {
  for (const auto& [capacity, blocks] : free_) {
    for (std::byte* block : blocks) ::operator delete(block, kAlignment);
  }
}

Buffer PiecePool::Allocate(size_t size, std::byte** bytes) {
  if (size < kLeastPooled) return Buffer::Allocate(size, bytes);
  const size_t capacity = Capacity(size);
  std::byte* memory = nullptr;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto blocks = free_.find(capacity);
    if (blocks != free_.end() && !blocks->second.empty()) {
      memory = blocks->second.back();
      blocks->second.pop_back();
      free_bytes_ -= capacity;
    }
  }
  if (memory == nullptr) memory = static_cast<std::byte*>(::operator new(capacity, kAlignment));
  *bytes = memory;
  std::shared_ptr<const void> owner(memory, [pool = shared_from_this(), capacity](const void* block) {
    pool->GiveBack(static_cast<std::byte*>(const_cast<void*>(block)), capacity);
  });
  return Buffer::Wrap(std::move(owner), memory, size);
}

size_t PiecePool::free_bytes() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return free_bytes_;
}

void PiecePool::GiveBack(std::byte* memory, size_t capacity) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (free_bytes_ + capacity <= max_free_bytes_) {
      free_[capacity].push_back(memory);
      free_bytes_ += capacity;
      return;
    }
  }
  ::operator delete(memory, kAlignment);
}

}  // namespace troupe::runtime::internal
