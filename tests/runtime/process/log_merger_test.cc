#include "runtime/process/log_merger.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace troupe::runtime {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr absl::Duration kWindow = absl::Milliseconds(100);
const absl::Time kStart = absl::UnixEpoch();

TEST(LogMergerTest, LineOfAllRanksIsOneLineAtOnce) {
  LogMerger merger(3, kWindow);
  merger.Add(0, "same", kStart);
  merger.Add(2, "same", kStart);
  EXPECT_THAT(merger.Take(kStart), IsEmpty());
  merger.Add(1, "same", kStart);
  EXPECT_THAT(merger.Take(kStart), ElementsAre("[rank 0-2] same"));
}

TEST(LogMergerTest, LineOfSomeWaitsForTheWindow) {
  LogMerger merger(4, kWindow);
  merger.Add(3, "a", kStart);
  merger.Add(1, "a", kStart + kWindow / 2);
  EXPECT_EQ(merger.NextDeadline(), kStart + kWindow);
  EXPECT_THAT(merger.Take(kStart + kWindow), ElementsAre("[rank 1,3] a"));
  EXPECT_EQ(merger.NextDeadline(), absl::InfiniteFuture());
}

TEST(LogMergerTest, LinesOfOneRankKeepTheirOrder) {
  LogMerger merger(2, kWindow);
  merger.Add(0, "x", kStart);
  merger.Add(0, "y", kStart);
  merger.Add(1, "y", kStart);
  merger.Add(1, "x", kStart);  // must not join the first x, which comes before its y
  EXPECT_THAT(merger.TakeAll(), ElementsAre("[rank 0] x", "[rank 0-1] y", "[rank 1] x"));
}

TEST(LogMergerTest, RepeatsAreCounted) {
  LogMerger merger(2, kWindow);
  for (int i = 0; i < 3; ++i) merger.Add(0, "again", kStart);
  merger.Add(1, "again", kStart);
  EXPECT_THAT(merger.TakeAll(), ElementsAre("[rank 0-1] again (3 times)"));
}

TEST(LogMergerTest, TimesOfDayDoNotTellLinesApart) {
  LogMerger merger(2, kWindow);
  merger.Add(0, "12:34:56.789 info: ready", kStart);
  merger.Add(1, "12:34:56.790 info: ready", kStart);
  EXPECT_THAT(merger.TakeAll(), ElementsAre("[rank 0-1] 12:34:56.789 info: ready"));
}

TEST(LogMergerTest, FloodIsNotHeldBack) {
  LogMerger merger(2, kWindow);
  for (int i = 0; i < 1000; ++i) merger.Add(0, std::to_string(i), kStart);
  EXPECT_GE(merger.Take(kStart).size(), 700u);
}

TEST(LogMergerTest, RanksAreWrittenAsRanges) {
  EXPECT_EQ(FormatRanks({0}), "0");
  EXPECT_EQ(FormatRanks({0, 1, 2, 5, 7, 8}), "0-2,5,7-8");
}

}  // namespace
}  // namespace troupe::runtime
