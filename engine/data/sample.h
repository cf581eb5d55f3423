/// One training example after tokenisation.
#pragma once

#include <cstdint>
#include <vector>

namespace troupe::engine {

/// Shapes  token_ids, loss_mask: [T]; loss_mask[i] = 1 when token i is a target, i.e. its log-probability given tokens
///         0..i-1 counts in the loss; loss_mask[0] is always 0
struct Sample {
  std::vector<int32_t> token_ids;
  std::vector<uint8_t> loss_mask;
  int64_t index = 0;  ///< row of the dataset, from 0, bad rows not counted
};

}  // namespace troupe::engine
