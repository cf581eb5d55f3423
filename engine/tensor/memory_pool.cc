#include "engine/tensor/memory_pool.h"

#include <atomic>
#include <bit>
#include <map>
#include <new>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace troupe::engine {
namespace {

constexpr std::align_val_t kAlignment{64};

/// The next of 1, 1.25, 1.5, 1.75 times a power of two.
size_t SizeClass(size_t size) {
  if (size <= 256) return 256;
  const size_t quarter = std::bit_floor(size - 1) / 4;
  return (size + quarter - 1) / quarter * quarter;
}

struct FreeLists {
  absl::Mutex mutex;
  std::map<size_t, std::vector<std::byte*>> blocks ABSL_GUARDED_BY(mutex);
  std::atomic<size_t> in_use{0};
};

// Never destroyed: tensors may outlive every static object.
FreeLists& Lists() {
  static FreeLists* lists = new FreeLists;
  return *lists;
}

}  // namespace

std::shared_ptr<std::byte> MemoryPool::Allocate(size_t size) {
  const size_t rounded = SizeClass(size);
  FreeLists& lists = Lists();
  std::byte* memory = nullptr;
  {
    absl::MutexLock lock(&lists.mutex);
    std::vector<std::byte*>& free = lists.blocks[rounded];
    if (!free.empty()) {
      memory = free.back();
      free.pop_back();
    }
  }
  if (memory == nullptr) memory = static_cast<std::byte*>(::operator new(rounded, kAlignment));
  lists.in_use += rounded;
  return {memory, [rounded](std::byte* block) {
            FreeLists& all = Lists();
            all.in_use -= rounded;
            absl::MutexLock lock(&all.mutex);
            all.blocks[rounded].push_back(block);
          }};
}

size_t MemoryPool::BytesInUse() { return Lists().in_use; }

void MemoryPool::Trim() {
  FreeLists& lists = Lists();
  absl::MutexLock lock(&lists.mutex);
  for (auto& [size, blocks] : lists.blocks) {
    for (std::byte* block : blocks) ::operator delete(block, kAlignment);
    blocks.clear();
  }
}

}  // namespace troupe::engine
