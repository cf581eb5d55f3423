#include "actors/report/human_units.h"

#include <gtest/gtest.h>

#include <limits>

#include "actors/report/memory.h"

namespace troupe::actors {
namespace {

TEST(HumanUnitsTest, ElapsedShowsTheTwoLargestUnits) {
  EXPECT_EQ(FormatElapsed(absl::ZeroDuration()), "0s");
  EXPECT_EQ(FormatElapsed(absl::Seconds(-3)), "0s");
  EXPECT_EQ(FormatElapsed(absl::Milliseconds(59999)), "59s");
  EXPECT_EQ(FormatElapsed(absl::Seconds(200)), "3m 20s");
  EXPECT_EQ(FormatElapsed(absl::Seconds(60)), "1m 00s");
  EXPECT_EQ(FormatElapsed(absl::Minutes(62)), "1h 02m");
  EXPECT_EQ(FormatElapsed(absl::Hours(51)), "2d 03h");
  EXPECT_EQ(FormatElapsed(absl::InfiniteDuration()), "?");
}

TEST(HumanUnitsTest, CountsHaveThreeDigits) {
  EXPECT_EQ(FormatCount(0), "0");
  EXPECT_EQ(FormatCount(950.4), "950");
  EXPECT_EQ(FormatCount(999.6), "1.00k");
  EXPECT_EQ(FormatCount(4321), "4.32k");
  EXPECT_EQ(FormatCount(43210), "43.2k");
  EXPECT_EQ(FormatCount(432100), "432k");
  EXPECT_EQ(FormatCount(9999), "10.0k");
  EXPECT_EQ(FormatCount(4.3e6), "4.30M");
  EXPECT_EQ(FormatCount(std::numeric_limits<double>::infinity()), "?");
}

TEST(HumanUnitsTest, WidthCountsCharactersNotBytes) {
  EXPECT_EQ(DisplayWidth("abc"), 3);
  EXPECT_EQ(DisplayWidth("█░─"), 3);
}

TEST(MemoryTest, ThisProcessHoldsSomethingAndNeverMoreThanItsPeak) {
  EXPECT_GT(MemoryGib(), 0.0005);
  // The two counters are kept apart by the kernel and may differ by a few pages.
  EXPECT_LE(MemoryGib(), PeakMemoryGib() + 0.01);
  EXPECT_LT(PeakMemoryGib(), 8);
  EXPECT_EQ(FormatGib(0.4212), "0.42 GiB");
}

}  // namespace
}  // namespace troupe::actors
