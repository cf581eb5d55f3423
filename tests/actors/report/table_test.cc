#include "actors/report/table.h"

#include <gtest/gtest.h>

namespace troupe::actors {
namespace {

TEST(TableTest, NumbersAreSetRightAndWordsLeft) {
  EXPECT_EQ(FormatTable({"memory", {"rank", "held"}, {{"0", "a"}, {"10", "bcd"}}}, /*unicode=*/false),
            "memory\n"
            "+------+------+\n"
            "| rank | held |\n"
            "+------+------+\n"
            "|    0 | a    |\n"
            "|   10 | bcd  |\n"
            "+------+------+\n");
}

TEST(TableTest, FramesMayBeDrawnAndCellsMayHoldUtf8) {
  EXPECT_EQ(FormatTable({"", {"é"}, {{"äöü"}}}, /*unicode=*/true), "┌─────┐\n│ é   │\n├─────┤\n│ äöü │\n└─────┘\n");
}

TEST(TableTest, PlacementShowsCoordinatesOfTheMeshAndNoneOutside) {
  const Table table = PlacementTable(*runtime::DeviceMesh::Parse("2x2"),
                                     {{.rank = 3, .host = "a", .pid = 7}, {.rank = 4, .role = "sampler", .host = "b"}});
  EXPECT_EQ(table.title, "mesh 2x2 (dp 2 x fsdp 2, 4 ranks)");
  EXPECT_EQ(table.columns, (std::vector<std::string>{"rank", "role", "dp", "fsdp", "host", "pid", "threads"}));
  EXPECT_EQ(table.rows[0], (std::vector<std::string>{"3", "trainer", "1", "1", "a", "7", "1"}));
  EXPECT_EQ(table.rows[1], (std::vector<std::string>{"4", "sampler", "-", "-", "b", "0", "1"}));
}

}  // namespace
}  // namespace troupe::actors
