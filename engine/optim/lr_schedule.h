/// The learning rate of every step.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace troupe::engine {

/// With W = ceil(warmup_ratio S) warm-up steps of S, step s from 0:
///   s < W       lr s / W
///   constant    lr
///   linear      lr max(0, (S - s) / (S - W))
///   cosine      lr (1 + cos(pi p)) / 2, p = (s - W) / (S - W)
///   cosine_with_min_lr   the same, squeezed between min_lr and lr
///
/// Source  transformers' optimization.py; the first warm-up step has rate 0
class LrSchedule {
 public:
  struct Options {
    std::string type = "cosine";  ///< constant, linear, cosine, cosine_with_min_lr
    double learning_rate = 1e-4;
    double warmup_ratio = 0;
    double min_lr = 0;       ///< of cosine_with_min_lr
    double min_lr_rate = 0;  ///< the same as a share of learning_rate
    int64_t total_steps = 1;
  };
  /// Errors  INVALID_ARGUMENT naming an unknown type, or a rate, ratio or count that is out of range
  static absl::StatusOr<LrSchedule> Create(const Options& options);

  /// The rate that optimiser step `step` uses, counted from 0.
  double LearningRate(int64_t step) const;

 private:
  explicit LrSchedule(const Options& options) : options_(options) {}
  Options options_;
  int64_t warmup_steps_ = 0;
};

}  // namespace troupe::engine
