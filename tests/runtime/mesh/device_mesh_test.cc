#include "runtime/mesh/device_mesh.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/msg/codec.h"

namespace troupe::runtime {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

DeviceMesh Mesh(const std::string& text) {
  const auto mesh = DeviceMesh::Parse(text);
  EXPECT_TRUE(mesh.ok()) << mesh.status();
  return mesh.value_or(DeviceMesh());
}

std::string ErrorOf(const std::string& text) {
  const auto mesh = DeviceMesh::Parse(text);
  EXPECT_FALSE(mesh.ok()) << text << " was parsed";
  return std::string(mesh.status().message());
}

TEST(DeviceMeshTest, TwoSizesAreDpByFsdpWithDpOutermost) {
  const DeviceMesh mesh = Mesh("2x3");
  EXPECT_EQ(mesh.size(), 6);
  EXPECT_EQ(mesh.dim("dp"), 2);
  EXPECT_EQ(mesh.dim("fsdp"), 3);
  EXPECT_EQ(mesh.dim("tp"), 1);
  EXPECT_THAT(mesh.coordinates(4), ElementsAre(1, 1));
  EXPECT_EQ(mesh.coordinate("dp", 4), 1);
  EXPECT_EQ(mesh.coordinate("tp", 4), 0);
  EXPECT_EQ(mesh.rank_of({1, 2}), 5);
  EXPECT_EQ(mesh, Mesh("dp=2,fsdp=3"));
}

TEST(DeviceMeshTest, OneSizeIsDp) {
  EXPECT_EQ(Mesh("4"), Mesh("dp=4"));
  EXPECT_EQ(Mesh("4").data_world_size(), 4);
  EXPECT_EQ(DeviceMesh().size(), 1);
}

TEST(DeviceMeshTest, RanksAreRowMajorInTheOrderWritten) {
  const DeviceMesh mesh = Mesh("dp=2,fsdp=2,tp=2");
  for (int rank = 0; rank < mesh.size(); ++rank) EXPECT_EQ(mesh.rank_of(mesh.coordinates(rank)), rank);
  EXPECT_THAT(mesh.coordinates(5), ElementsAre(1, 0, 1));
}

TEST(DeviceMeshTest, ASliceHoldsTheRanksThatDifferInOneDimension) {
  const DeviceMesh mesh = Mesh("2x2");
  EXPECT_THAT(mesh.slice("dp", 1), ElementsAre(1, 3));
  EXPECT_THAT(mesh.slice("fsdp", 2), ElementsAre(2, 3));
  EXPECT_THAT(mesh.slice("tp", 2), ElementsAre(2));
}

TEST(DeviceMeshTest, ASubMeshKeepsTheOtherCoordinates) {
  const DeviceMesh mesh = Mesh("dp=2,fsdp=2,tp=2");
  const auto part = mesh.sub_mesh(std::vector<std::string>{"dp", "fsdp"}, 3);
  ASSERT_TRUE(part.ok()) << part.status();
  EXPECT_EQ(part->mesh, Mesh("2x2"));
  EXPECT_THAT(part->ranks, ElementsAre(1, 3, 5, 7));
  EXPECT_THAT(std::string(mesh.sub_mesh(std::vector<std::string>{"pp"}, 0).status().message()),
              HasSubstr("dp=2,fsdp=2,tp=2 has no dimension \"pp\""));
  EXPECT_THAT(std::string(mesh.sub_mesh(std::vector<std::string>{"dp", "dp"}, 0).status().message()),
              HasSubstr("named twice"));
}

TEST(DeviceMeshTest, RanksThatDifferOnlyInTpOrPpShareADataRank) {
  const DeviceMesh mesh = Mesh("dp=2,tp=2,fsdp=2");
  EXPECT_EQ(mesh.data_world_size(), 4);
  std::vector<int> data_ranks;
  for (int rank = 0; rank < mesh.size(); ++rank) data_ranks.push_back(mesh.data_rank(rank));
  EXPECT_THAT(data_ranks, ElementsAre(0, 1, 0, 1, 2, 3, 2, 3));
  EXPECT_THAT(mesh.data_representatives(), ElementsAre(0, 1, 4, 5));
}

TEST(DeviceMeshTest, DataRanksDoNotDependOnTheOrderOfDimensions) {
  const DeviceMesh mesh = Mesh("fsdp=2,dp=2");
  EXPECT_THAT(mesh.data_representatives(), ElementsAre(0, 2, 1, 3));
}

TEST(DeviceMeshTest, ItsStringParsesBack) {
  for (const char* text : {"1", "2x2", "1x4", "dp=2,tp=2,fsdp=2", "ep=3,cp=1,pp=2"}) {
    EXPECT_EQ(Mesh(Mesh(text).ToString()), Mesh(text)) << text;
  }
  EXPECT_EQ(Mesh("2x2").Describe(), "2x2 (dp 2 x fsdp 2, 4 ranks)");
}

TEST(DeviceMeshTest, ErrorsNameWhatIsWrong) {
  EXPECT_THAT(ErrorOf("2xx"), HasSubstr("has 3 sizes"));
  EXPECT_THAT(ErrorOf("2x"), HasSubstr("\"\" is not a size"));
  EXPECT_THAT(ErrorOf("0x2"), HasSubstr("at least 1, not 0"));
  EXPECT_THAT(ErrorOf("-1x2"), HasSubstr("\"-1\" is not a size"));
  EXPECT_THAT(ErrorOf("2x2x2"), HasSubstr("has 3 sizes"));
  EXPECT_THAT(ErrorOf(""), HasSubstr("empty"));
  EXPECT_THAT(ErrorOf("2 x2"), HasSubstr("\"2 \" is not a size"));
  EXPECT_THAT(ErrorOf("dq=2"), HasSubstr("\"dq\" is unknown"));
  EXPECT_THAT(ErrorOf("dp=2,dp=3"), HasSubstr("dp is given twice: 2 and 3"));
  EXPECT_THAT(ErrorOf("dp=2,fsdp"), HasSubstr("\"fsdp\" is not name=size"));
  EXPECT_THAT(ErrorOf("dp=2,,fsdp=2"), HasSubstr("\"\" is not name=size"));
  EXPECT_THAT(ErrorOf("99999999999999999999"), HasSubstr("above the largest, 65536"));
  EXPECT_THAT(ErrorOf("65536x65536"), HasSubstr("more than 65536 ranks"));
}

TEST(DeviceMeshTest, TravelsThroughTheCodec) {
  const DeviceMesh mesh = Mesh("dp=2,tp=3");
  const auto back = DecodeValue<DeviceMesh>(EncodeValue(mesh));
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(*back, mesh);
}

TEST(DeviceMeshTest, ABrokenMeshOnTheWireIsAnError) {
  const auto back = DecodeValue<DeviceMesh>(EncodeValue(std::string("0x2")));
  ASSERT_FALSE(back.ok());
  EXPECT_THAT(std::string(back.status().message()), HasSubstr("at least 1, not 0"));
}

}  // namespace
}  // namespace troupe::runtime
