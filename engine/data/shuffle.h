/// Permutations that depend on a key alone.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/random/philox.h"

namespace troupe::engine {

/// A permutation of 0..size-1 by Fisher and Yates, swap i drawn from block i.
std::vector<int64_t> Permutation(size_t size, const Philox& philox);

}  // namespace troupe::engine
