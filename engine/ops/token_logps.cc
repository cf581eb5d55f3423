#include "engine/ops/token_logps.h"

#include <algorithm>

namespace troupe::engine {
namespace {

constexpr int64_t kRows = 256;  // rows of logits at a time

}  // namespace

TokenScores TokenLogps(Tape& tape, const Variable& x, Parameter& head, std::vector<int32_t> targets,
                       std::shared_ptr<std::vector<float>> dlogps) {
  Device& device = tape.device();
  const int64_t num_rows = x.value().rows(), vocab = head.spec().shape[0];
  TROUPE_CHECK_EQ(static_cast<int64_t>(targets.size()), num_rows);
  TokenScores scores;
  scores.logps.resize(targets.size());
  scores.logsumexp.resize(targets.size());
  scores.is_argmax.resize(targets.size());
  for (int64_t begin = 0; begin < num_rows; begin += kRows) {
    const int64_t end = std::min(num_rows, begin + kRows);
    const Tensor logits = Tensor::Empty({end - begin, vocab});
    device.MatMul(x.value().Rows(begin, end), head.transposed(device), false, logits);
    device.ScoreTargets(logits, absl::MakeConstSpan(targets).subspan(static_cast<size_t>(begin)), begin, scores);
  }
  if (!tape.recording()) return scores;
  tape.Record([&device, x, &head, targets = std::move(targets), dlogps, logsumexp = scores.logsumexp, num_rows, vocab] {
    TROUPE_CHECK_EQ(static_cast<int64_t>(dlogps->size()), num_rows);
    const Tensor dx = Tensor::Empty(x.value().shape());
    for (int64_t begin = 0; begin < num_rows; begin += kRows) {
      const int64_t end = std::min(num_rows, begin + kRows);
      const auto from = static_cast<size_t>(begin), count = static_cast<size_t>(end - begin);
      const Tensor rows = x.value().Rows(begin, end);
      const Tensor dlogits = Tensor::Empty({end - begin, vocab});
      device.MatMul(rows, head.transposed(device), false, dlogits);
      device.ScoreTargetsBackward(absl::MakeConstSpan(targets).subspan(from, count), absl::MakeConstSpan(logsumexp).subspan(from, count),
                                  absl::MakeConstSpan(*dlogps).subspan(from, count), dlogits);
      device.MatMul(dlogits, head.value(), false, dx.Rows(begin, end));
      if (head.trainable()) device.MatMulTransposedA(dlogits, rows, head.grad());
    }
    if (x.requires_grad()) x.AccumulateGrad(device, dx);
    return absl::OkStatus();
  });
  return scores;
}

}  // namespace troupe::engine
