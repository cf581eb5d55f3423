#include <cstring>
#include <vector>

#include "engine/device/cpu/cpu_device_impl.h"
#include "engine/device/cpu/tiles.h"

namespace troupe::engine::cpu {
namespace {

constexpr int64_t kPanel = 1024;          // columns of a product done by one call
constexpr int64_t kReduceRows = 256;      // rows summed by one call of a^T b
constexpr int64_t kTransposedTile = 256;  // rows of its result

struct Tile {
  int64_t row = 0;
  int64_t rows = 0;    // that exist
  int64_t height = 0;  // that are computed
  int64_t column = 0;
  int64_t columns = 0;
  int64_t k_block = 0;
};

/// Cuts M rows into tiles of allowed heights; small ones when there are threads to feed.
void CutRows(int64_t m, const TilePlan& plan, int64_t column, int64_t columns, int64_t wanted_tiles, std::vector<Tile>& tiles) {
  size_t largest = 0;
  while (largest + 1 < plan.heights.size() && plan.heights[largest + 1] >= 64 && m / plan.heights[largest] < wanted_tiles) ++largest;
  int64_t row = 0;
  while (row < m) {
    const int64_t left = m - row;
    int64_t height = plan.heights.back();
    for (size_t i = largest; i < plan.heights.size(); ++i) {
      if (plan.heights[i] <= left) {
        height = plan.heights[i];
        break;
      }
    }
    tiles.push_back({row, std::min(left, height), height, column, columns, plan.k_block});
    row += height;
  }
}

}  // namespace

void CpuDevice::MatMul(const Tensor& a, const Tensor& b, bool accumulate, const Tensor& c) {
  const int64_t m = a.rows(), k = a.cols(), n = b.cols();
  TROUPE_CHECK_EQ(b.rows(), k);
  TROUPE_CHECK_EQ(c.rows(), m);
  TROUPE_CHECK_EQ(c.cols(), n);
  std::vector<Tile> tiles;
  const int64_t num_panels = (n + kPanel - 1) / kPanel;
  const int64_t wanted_rows = (2 * pool_.num_threads() + num_panels - 1) / num_panels;
  for (int64_t column = 0; column < n; column += kPanel) {
    const int64_t columns = std::min(kPanel, n - column);
    CutRows(m, PlanTiles(k, columns), column, columns, pool_.num_threads() == 1 ? 1 : wanted_rows, tiles);
  }
  const float* a_data = a.f32();
  const float* b_data = b.f32();
  float* c_data = c.f32();
  pool_.ParallelFor(static_cast<int64_t>(tiles.size()), [&](int64_t i) {
    const Tile& tile = tiles[static_cast<size_t>(i)];
    const float* a_tile = a_data + tile.row * k;
    float* c_tile = c_data + tile.row * n + tile.column;
    if (tile.rows == tile.height) {
      RunTile(tile.height, tile.columns, k, tile.k_block, a_tile, k, b_data + tile.column, n, accumulate, c_tile, n);
      return;
    }
    // The last rows: padded with zeros to a height that is allowed.
    const Tensor a_padded = Tensor::Zeros({tile.height, k});
    const Tensor c_padded = Tensor::Zeros({tile.height, tile.columns});
    std::memcpy(a_padded.f32(), a_tile, static_cast<size_t>(tile.rows * k) * sizeof(float));
    if (accumulate) {
      for (int64_t r = 0; r < tile.rows; ++r) std::copy_n(c_tile + r * n, tile.columns, c_padded.f32() + r * tile.columns);
    }
    RunTile(tile.height, tile.columns, k, tile.k_block, a_padded.f32(), k, b_data + tile.column, n, accumulate, c_padded.f32(),
            tile.columns);
    for (int64_t r = 0; r < tile.rows; ++r) std::copy_n(c_padded.f32() + r * tile.columns, tile.columns, c_tile + r * n);
  });
}

void CpuDevice::MatMulTransposedA(const Tensor& a, const Tensor& b, const Tensor& c) {
  const int64_t r = a.rows(), m = a.cols(), n = b.cols();
  TROUPE_CHECK_EQ(b.rows(), r);
  TROUPE_CHECK_EQ(c.rows(), m);
  TROUPE_CHECK_EQ(c.cols(), n);
  const int64_t row_tiles = (m + kTransposedTile - 1) / kTransposedTile;
  const int64_t panels = (n + kPanel - 1) / kPanel;
  pool_.ParallelFor(row_tiles * panels, [&](int64_t i) {
    const int64_t row = i / panels * kTransposedTile, column = i % panels * kPanel;
    const int64_t rows = std::min(kTransposedTile, m - row), columns = std::min(kPanel, n - column);
    for (int64_t begin = 0; begin < r; begin += kReduceRows) {
      RunTransposedTile(rows, columns, std::min(kReduceRows, r - begin), a.f32() + begin * m + row, m, b.f32() + begin * n + column,
                        n, c.f32() + row * n + column, n);
    }
  });
}

void CpuDevice::Transpose(const Tensor& a, const Tensor& out) {
  const int64_t rows = a.rows(), cols = a.cols();
  TROUPE_CHECK_EQ(out.rows(), cols);
  TROUPE_CHECK_EQ(out.cols(), rows);
  constexpr int64_t kBlock = 32;
  const float* from = a.f32();
  float* to = out.f32();
  ForRanges(cols, kBlock, [&](int64_t c0, int64_t c1) {
    for (int64_t r0 = 0; r0 < rows; r0 += kBlock) {
      const int64_t r1 = std::min(rows, r0 + kBlock);
      for (int64_t c = c0; c < c1; ++c) {
        for (int64_t r = r0; r < r1; ++r) to[c * rows + r] = from[r * cols + c];
      }
    }
  });
}

}  // namespace troupe::engine::cpu
