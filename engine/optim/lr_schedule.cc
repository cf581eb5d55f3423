#include "engine/optim/lr_schedule.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"

namespace troupe::engine {

absl::StatusOr<LrSchedule> LrSchedule::Create(const Options& options) {
  if (options.type != "constant" && options.type != "linear" && options.type != "cosine" && options.type != "cosine_with_min_lr") {
    return absl::InvalidArgumentError(
        absl::StrCat("lr_scheduler_type \"", options.type, "\": there are constant, linear, cosine and cosine_with_min_lr"));
  }
  if (!(options.learning_rate >= 0) || !(options.warmup_ratio >= 0 && options.warmup_ratio <= 1) || options.total_steps < 1) {
    return absl::InvalidArgumentError(absl::StrCat("learning_rate ", options.learning_rate, ", warmup_ratio ", options.warmup_ratio,
                                                   " and total_steps ", options.total_steps, " make no schedule"));
  }
  LrSchedule schedule(options);
  schedule.warmup_steps_ = static_cast<int64_t>(std::ceil(options.warmup_ratio * static_cast<double>(options.total_steps)));
  return schedule;
}

double LrSchedule::LearningRate(int64_t step) const {
  const auto s = static_cast<double>(step), warmup = static_cast<double>(warmup_steps_);
  const auto total = static_cast<double>(options_.total_steps);
  if (step < warmup_steps_) return options_.learning_rate * (s / std::max(1.0, warmup));
  if (options_.type == "constant") return options_.learning_rate;
  if (options_.type == "linear") return options_.learning_rate * std::max(0.0, (total - s) / std::max(1.0, total - warmup));
  const double progress = (s - warmup) / std::max(1.0, total - warmup);
  const double cosine = std::max(0.0, 0.5 * (1.0 + std::cos(M_PI * progress)));
  if (options_.type == "cosine") return options_.learning_rate * cosine;
  const double floor = options_.min_lr > 0 && options_.learning_rate > 0 ? options_.min_lr / options_.learning_rate : options_.min_lr_rate;
  return options_.learning_rate * std::max(0.0, cosine * (1.0 - floor) + floor);
}

}  // namespace troupe::engine
