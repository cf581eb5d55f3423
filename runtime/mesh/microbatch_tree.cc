#include "runtime/mesh/microbatch_tree.h"

#include "absl/strings/str_cat.h"

namespace troupe::runtime {

namespace {

bool IsPowerOfTwo(int n) { return n > 0 && (n & (n - 1)) == 0; }

}  // namespace

absl::StatusOr<MicroBatchPlan> MicroBatchPlan::Create(int64_t micro_batches, Shape shape) {
  if (shape.dp < 1 || shape.fsdp < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("micro-batches for a mesh of dp ", shape.dp, " x fsdp ", shape.fsdp, ": sizes are at least 1"));
  }
  const int64_t ranks = static_cast<int64_t>(shape.dp) * shape.fsdp;
  if (micro_batches < 1 || micro_batches % ranks != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        micro_batches, " micro-batches cannot be dealt evenly to ", ranks, " ranks (dp ", shape.dp, " x fsdp ",
        shape.fsdp, "): make the global batch (per_device_train_batch_size x gradient_accumulation_steps x ranks) a ",
        "multiple of per_device_train_batch_size x ", ranks, ", or use a smaller mesh"));
  }
  int64_t groups = micro_batches / ranks;
  int64_t steps_per_dp_reduce = 1;
  while (groups % 2 == 0) {
    groups /= 2;
    steps_per_dp_reduce *= 2;
  }
  return MicroBatchPlan(micro_batches, shape, steps_per_dp_reduce, groups);
}

int64_t MicroBatchPlan::MicroBatch(const Place& place) const {
  TROUPE_CHECK(place.d >= 0 && place.d < shape_.dp && place.f >= 0 && place.f < shape_.fsdp && place.step >= 0 &&
               place.step < Steps())
      << "no rank (" << place.d << ", " << place.f << ") or step " << place.step;
  const int64_t group = place.step / steps_per_dp_reduce_;
  const int64_t inner = place.step % steps_per_dp_reduce_;
  return ((group * shape_.dp + place.d) * steps_per_dp_reduce_ + inner) * shape_.fsdp + place.f;
}

MicroBatchPlan::Place MicroBatchPlan::PlaceOf(int64_t micro_batch) const {
  TROUPE_CHECK(micro_batch >= 0 && micro_batch < micro_batches_) << "micro-batch " << micro_batch;
  Place place;
  place.f = static_cast<int>(micro_batch % shape_.fsdp);
  micro_batch /= shape_.fsdp;
  const int64_t inner = micro_batch % steps_per_dp_reduce_;
  micro_batch /= steps_per_dp_reduce_;
  place.d = static_cast<int>(micro_batch % shape_.dp);
  place.step = micro_batch / shape_.dp * steps_per_dp_reduce_ + inner;
  return place;
}

bool MicroBatchPlan::SameBits() const { return IsPowerOfTwo(shape_.dp) && IsPowerOfTwo(shape_.fsdp); }

}  // namespace troupe::runtime
