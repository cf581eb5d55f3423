#include "engine/data/shuffle.h"

#include <numeric>
#include <utility>

namespace troupe::engine {

std::vector<int64_t> Permutation(size_t size, const Philox& philox) {
  std::vector<int64_t> order(size);
  std::iota(order.begin(), order.end(), 0);
  for (size_t i = size; i > 1; --i) {
    const std::array<uint32_t, 4> bits = philox.Block(i - 1);
    std::swap(order[i - 1], order[(uint64_t{bits[0]} << 32 | bits[1]) % i]);
  }
  return order;
}

}  // namespace troupe::engine
