#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>

#include "engine/device/cpu/cpu_device.h"
#include "engine/device/cpu/tiles.h"
#include "engine/random/philox.h"

namespace troupe::engine {
namespace {

Tensor Random(int64_t rows, int64_t cols, uint64_t stream) {
  const Tensor t = Tensor::Empty({rows, cols});
  const Philox philox(1, RandomPurpose::kInit, stream);
  for (int64_t i = 0; i < t.size(); ++i) t.f32()[i] = philox.Normal(static_cast<uint64_t>(i));
  return t;
}

struct Size {
  int64_t k, n;
};

// The shapes of troupe-tiny, of Qwen2.5-0.5B's layers, and some that fit no vector.
const Size kSizes[] = {{192, 192}, {192, 64}, {512, 192}, {192, 2048}, {896, 896}, {896, 128}, {896, 4864}, {4864, 896}, {8, 896},
                       {896, 8},   {16, 16},  {77, 51},   {1, 3},      {24, 40}};

TEST(MatMulTest, MatchesProductsInDouble) {
  const auto device = MakeCpuDevice(2);
  for (const Size& size : kSizes) {
    const int64_t m = 19;
    const Tensor a = Random(m, size.k, 1), b = Random(size.k, size.n, 2), c = Tensor::Zeros({m, size.n});
    device->MatMul(a, b, false, c);
    for (int64_t i = 0; i < m; i += 6) {
      for (int64_t j = 0; j < size.n; j += 1 + size.n / 7) {
        double sum = 0;
        for (int64_t k = 0; k < size.k; ++k) sum += static_cast<double>(a.f32()[i * size.k + k]) * static_cast<double>(b.f32()[k * size.n + j]);
        EXPECT_NEAR(static_cast<double>(c.f32()[i * size.n + j]), sum, 1e-4 * std::sqrt(static_cast<double>(size.k)));
      }
    }
  }
}

TEST(MatMulTest, ARowHasTheSameBitsAtEveryPlaceInEveryTileWithAnyThreads) {
  const auto one = MakeCpuDevice(1);
  const auto two = MakeCpuDevice(2);
  for (const Size& size : kSizes) {
    const Tensor rows = Random(300, size.k, 3), b = Random(size.k, size.n, 4);
    const Tensor all = Tensor::Empty({300, size.n});
    one->MatMul(rows, b, false, all);
    for (int64_t begin : {0, 1, 7, 64, 131, 255, 299}) {
      for (int64_t count : {1, 2, 15, 16, 17, 45, 100, 169}) {
        if (begin + count > 300) continue;
        const Tensor some = Tensor::Empty({count, size.n});
        two->MatMul(rows.Rows(begin, begin + count), b, false, some);
        ASSERT_EQ(some.ToVector(), all.Rows(begin, begin + count).ToVector())
            << "rows " << begin << " + " << count << " of k " << size.k << " n " << size.n << " on " << CpuInstructionSet();
      }
    }
    // Accumulation takes part in the same promise.
    const Tensor whole = Tensor::Empty({300, size.n}), part = Tensor::Empty({5, size.n});
    whole.Fill(0.25f);
    part.Fill(0.25f);
    one->MatMul(rows, b, true, whole);
    two->MatMul(rows.Rows(200, 205), b, true, part);
    ASSERT_EQ(part.ToVector(), whole.Rows(200, 205).ToVector());
  }
}

TEST(MatMulTest, TheTransposedProductDoesNotDependOnThreads) {
  const auto one = MakeCpuDevice(1);
  const auto two = MakeCpuDevice(2);
  const Tensor a = Random(700, 300, 5), b = Random(700, 1100, 6);
  const Tensor x = Tensor::Zeros({300, 1100}), y = Tensor::Zeros({300, 1100});
  one->MatMulTransposedA(a, b, x);
  two->MatMulTransposedA(a, b, y);
  EXPECT_EQ(x.ToVector(), y.ToVector());
  double sum = 0;
  for (int64_t r = 0; r < 700; ++r) sum += static_cast<double>(a.f32()[r * 300 + 17]) * static_cast<double>(b.f32()[r * 1100 + 1050]);
  EXPECT_NEAR(static_cast<double>(x.f32()[17 * 1100 + 1050]), sum, 1e-3);
}

}  // namespace
}  // namespace troupe::engine
