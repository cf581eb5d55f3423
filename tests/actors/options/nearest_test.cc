#include "actors/options/nearest.h"

#include <gtest/gtest.h>

namespace troupe::actors {
namespace {

TEST(NearestTest, CountsInsertionsDeletionsReplacementsAndSwaps) {
  EXPECT_EQ(EditDistance("", ""), 0);
  EXPECT_EQ(EditDistance("", "abc"), 3);
  EXPECT_EQ(EditDistance("abc", ""), 3);
  EXPECT_EQ(EditDistance("rank", "rang"), 1);
  EXPECT_EQ(EditDistance("rank", "rnak"), 1);
  EXPECT_EQ(EditDistance("kitten", "sitting"), 3);
  EXPECT_EQ(EditDistance("ab", "ba"), 1);
}

TEST(NearestTest, NamesTheClosestAndTheFirstOfEquals) {
  EXPECT_EQ(Nearest("lora_rnk", {"lora_alpha", "lora_rank", "rank"}), "lora_rank");
  EXPECT_EQ(Nearest("x", {"a", "b"}), "a");
  EXPECT_EQ(Nearest("x", {}), "");
}

}  // namespace
}  // namespace troupe::actors
