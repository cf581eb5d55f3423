/// The class behind MakeCpuDevice; its methods lie in one file a kind of kernel.
#pragma once

#include <algorithm>

#include "engine/device/cpu/cpu_device.h"
#include "engine/threads/thread_pool.h"

namespace troupe::engine::cpu {

class CpuDevice final : public Device {
 public:
  explicit CpuDevice(int num_threads) : pool_(num_threads) {}

  void MatMul(const Tensor& a, const Tensor& b, bool accumulate, const Tensor& c) override;
  void MatMulTransposedA(const Tensor& a, const Tensor& b, const Tensor& c) override;
  void Transpose(const Tensor& a, const Tensor& out) override;
  void AddScaled(const Tensor& x, float alpha, const Tensor& y) override;
  void Add(const Tensor& a, const Tensor& b, const Tensor& out) override;
  void AddBias(const Tensor& bias, const Tensor& y) override;
  void BiasBackward(const Tensor& dy, const Tensor& dbias) override;
  void RmsNorm(const Tensor& x, const Tensor& gain, double eps, const Tensor& y, const Tensor& r) override;
  void RmsNormBackward(const Tensor& dy, const Tensor& x, const Tensor& gain, const Tensor& r, const Tensor& dx,
                       const Tensor& dgain) override;
  void Rope(const Tensor& x, absl::Span<const int32_t> positions, const Tensor& cos, const Tensor& sin, float direction,
            const Tensor& y) override;
  void Attention(const Tensor& q, const Tensor& k, const Tensor& v, const SequenceStarts& starts, const AttentionShape& shape,
                 const Tensor& out, const Tensor& logsumexp) override;
  void AttentionBackward(const Tensor& dout, const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& out,
                         const Tensor& logsumexp, const SequenceStarts& starts, const AttentionShape& shape, const Tensor& dq,
                         const Tensor& dk, const Tensor& dv) override;
  void SwiGlu(const Tensor& gate, const Tensor& up, const Tensor& y) override;
  void SwiGluBackward(const Tensor& dy, const Tensor& gate, const Tensor& up, const Tensor& dgate, const Tensor& dup) override;
  void GatherRows(const Tensor& table, absl::Span<const int32_t> rows, const Tensor& y) override;
  void ScatterAddRows(const Tensor& dy, absl::Span<const int32_t> rows, const Tensor& dtable) override;
  void ScoreTargets(const Tensor& logits, absl::Span<const int32_t> targets, int64_t first, TokenScores& scores) override;
  void ScoreTargetsBackward(absl::Span<const int32_t> targets, absl::Span<const float> logsumexp,
                            absl::Span<const float> dlogps, const Tensor& logits) override;
  void Dropout(const Tensor& x, float p, uint64_t stream, const DropoutRows& rows, const Tensor& y) override;
  void AdamW(const AdamWStep& step, absl::Span<const float> grad, absl::Span<float> weight, absl::Span<float> m,
             absl::Span<float> v) override;
  void SumsOfSquares(absl::Span<const float> x, int64_t chunk, absl::Span<double> sums) override;
  void Hashes(absl::Span<const float> x, int64_t chunk, absl::Span<uint64_t> hashes) override;
  void ToBf16(absl::Span<const float> x, absl::Span<uint16_t> y) override;
  void FromBf16(absl::Span<const uint16_t> x, absl::Span<float> y) override;

 private:
  /// Calls run(begin, end) for [0, count) in runs of `grain`, spread over the threads.
  template <typename Run>
  void ForRanges(int64_t count, int64_t grain, const Run& run) {
    const int64_t num_runs = (count + grain - 1) / grain;
    pool_.ParallelFor(num_runs, [&](int64_t i) { run(i * grain, std::min(count, (i + 1) * grain)); });
  }

  ThreadPool pool_;
};

}  // namespace troupe::engine::cpu
