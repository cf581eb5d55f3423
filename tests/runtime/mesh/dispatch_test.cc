#include "runtime/mesh/dispatch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace troupe::runtime {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// Every mesh of dp x fsdp x tp x pp with at most 8 ranks, in two orders of the dimensions.
std::vector<DeviceMesh> AllMeshesUpToEight() {
  std::vector<DeviceMesh> meshes;
  for (int dp = 1; dp <= 8; ++dp) {
    for (int fsdp = 1; dp * fsdp <= 8; ++fsdp) {
      for (int tp = 1; dp * fsdp * tp <= 8; ++tp) {
        for (int pp = 1; dp * fsdp * tp * pp <= 8; ++pp) {
          meshes.push_back(*DeviceMesh::FromDims({{"dp", dp}, {"fsdp", fsdp}, {"tp", tp}, {"pp", pp}}));
          meshes.push_back(*DeviceMesh::FromDims({{"pp", pp}, {"tp", tp}, {"fsdp", fsdp}, {"dp", dp}}));
        }
      }
    }
  }
  return meshes;
}

TEST(DispatchTest, SlicesDifferByAtMostOneRowAndTheFirstAreLonger) {
  EXPECT_EQ(SplitRows(10, 4, 0), (RowRange{0, 3}));
  EXPECT_EQ(SplitRows(10, 4, 1), (RowRange{3, 6}));
  EXPECT_EQ(SplitRows(10, 4, 2), (RowRange{6, 8}));
  EXPECT_EQ(SplitRows(10, 4, 3), (RowRange{8, 10}));
  EXPECT_EQ(SplitRows(2, 4, 3), (RowRange{2, 2}));
}

TEST(DispatchTest, DispatchThenFlattenIsTheIdentityForEveryMeshUpToEightRanks) {
  for (const DeviceMesh& mesh : AllMeshesUpToEight()) {
    for (const Dispatch dispatch : {Dispatch::kAll, Dispatch::kSlice, Dispatch::kSliceDp}) {
      for (size_t rows = 0; rows <= 19; ++rows) {
        std::vector<size_t> flat;
        for (const int rank : RepresentativeRanks(mesh, dispatch)) {
          const RowRange range = RowsOf(mesh, dispatch, rank, rows);
          for (size_t row = range.begin; row < range.end; ++row) flat.push_back(row);
        }
        std::vector<size_t> identity(rows);
        for (size_t row = 0; row < rows; ++row) identity[row] = row;
        ASSERT_EQ(flat, identity) << mesh.ToString() << " " << DispatchName(dispatch) << " " << rows << " rows";
      }
    }
  }
}

TEST(DispatchTest, DispatchThenCollectRowsIsTheIdentityForEveryMeshUpToEightRanks) {
  // Deals rows out backwards, round robin, the last rank getting every row.
  const DispatchFunction deal = [](const DeviceMesh& mesh, int rank, size_t rows) {
    std::vector<size_t> mine;
    for (size_t row = rows; row-- > 0;) {
      if (rank == mesh.size() - 1 || row % static_cast<size_t>(mesh.size()) == static_cast<size_t>(rank)) {
        mine.push_back(row);
      }
    }
    return mine;
  };
  for (const DeviceMesh& mesh : AllMeshesUpToEight()) {
    for (const Dispatch dispatch : {Dispatch::kAll, Dispatch::kSlice, Dispatch::kSliceDp, Dispatch::kFunction}) {
      for (size_t rows = 0; rows <= 19; ++rows) {
        const auto dispatched = DispatchRows(mesh, dispatch, rows, deal);
        ASSERT_TRUE(dispatched.ok()) << dispatched.status();
        const auto places = CollectRows(*dispatched, rows);
        ASSERT_TRUE(places.ok()) << places.status();
        for (size_t row = 0; row < rows; ++row) {
          const auto [rank, element] = (*places)[row];
          ASSERT_EQ((*dispatched)[static_cast<size_t>(rank)][element], row);
        }
      }
    }
  }
}

TEST(DispatchTest, RanksOfOneDataRankGetTheSameRows) {
  const DeviceMesh mesh = *DeviceMesh::Parse("dp=2,tp=2");
  EXPECT_EQ(RowsOf(mesh, Dispatch::kSliceDp, 0, 5), RowsOf(mesh, Dispatch::kSliceDp, 1, 5));
  EXPECT_EQ(RowsOf(mesh, Dispatch::kSliceDp, 2, 5), (RowRange{3, 5}));
  EXPECT_THAT(RepresentativeRanks(mesh, Dispatch::kSliceDp), ElementsAre(0, 2));
}

TEST(DispatchTest, ErrorsNameRankAndRow) {
  const DeviceMesh mesh = *DeviceMesh::Parse("2");
  const auto outside = [](const DeviceMesh&, int rank, size_t rows) {
    return std::vector<size_t>(1, rank == 1 ? rows : 0);
  };
  EXPECT_THAT(std::string(DispatchRows(mesh, Dispatch::kFunction, 3, outside).status().message()),
              HasSubstr("row 3 to rank 1, the batch has 3 rows"));
  EXPECT_THAT(std::string(DispatchRows(mesh, Dispatch::kFunction, 3).status().message()),
              HasSubstr("needs a function"));
  EXPECT_THAT(std::string(CollectRows({{0}, {2}}, 3).status().message()), HasSubstr("row 1 of 3 went to no rank"));
}

}  // namespace
}  // namespace troupe::runtime
