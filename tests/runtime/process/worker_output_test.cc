#include "runtime/process/worker_output.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

namespace troupe::runtime {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class WorkerOutputTest : public ::testing::Test {
 protected:
  void SetUp() override {
    char path[] = "/tmp/worker_output_test.XXXXXX";
    ASSERT_NE(mkdtemp(path), nullptr);
    directory_ = path;
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }
  static void Print(const WorkerOutput& output, const std::string& text) {
    ASSERT_EQ(write(output.write_fd(), text.data(), text.size()), static_cast<ssize_t>(text.size()));
  }
  static std::string Read(const std::string& path) {
    std::ifstream file(path);
    std::stringstream text;
    text << file.rdbuf();
    return text.str();
  }
  std::string directory_;
};

TEST_F(WorkerOutputTest, GivesWholeLinesAndKeepsAllBytes) {
  auto output = WorkerOutput::Open(3, directory_);
  ASSERT_TRUE(output.ok()) << output.status();
  Print(*output, "one\ntwo\r\nthr");
  EXPECT_THAT(output->Read(), ElementsAre("one", "two"));
  Print(*output, "ee\nrest");
  EXPECT_THAT(output->Read(), ElementsAre("three"));
  output->CloseWriteEnd();
  EXPECT_THAT(output->ReadRest(), ElementsAre("rest"));
  EXPECT_EQ(output->read_fd(), -1);
  EXPECT_EQ(Read(directory_ + "/worker-3.log"), "one\ntwo\r\nthree\nrest");
}

TEST_F(WorkerOutputTest, RemembersTheLastLines) {
  auto output = WorkerOutput::Open(0, directory_);
  ASSERT_TRUE(output.ok());
  for (int i = 0; i < 50; ++i) Print(*output, std::to_string(i) + "\n");
  EXPECT_EQ(output->Read().size(), 50u);
  ASSERT_EQ(output->last_lines().size(), WorkerOutput::kLastLines);
  EXPECT_EQ(output->last_lines().front(), "30");
  EXPECT_EQ(output->last_lines().back(), "49");
}

TEST_F(WorkerOutputTest, EndlessLineComesInPieces) {
  auto output = WorkerOutput::Open(0, directory_);
  ASSERT_TRUE(output.ok());
  Print(*output, std::string(WorkerOutput::kMaxLine * 2 + 5, 'x'));
  const auto lines = output->Read();
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[0].size(), WorkerOutput::kMaxLine);
}

TEST_F(WorkerOutputTest, MovesWhatWasWrittenAndGoesOnThere) {
  auto output = WorkerOutput::Open(1, directory_);
  ASSERT_TRUE(output.ok());
  Print(*output, "before\n");
  output->Read();
  ASSERT_TRUE(output->MoveTo(directory_ + "/a/b").ok());
  Print(*output, "after\n");
  output->Read();
  EXPECT_EQ(Read(directory_ + "/a/b/worker-1.log"), "before\nafter\n");
  EXPECT_FALSE(std::filesystem::exists(directory_ + "/worker-1.log"));
}

TEST_F(WorkerOutputTest, MoveThatFailsLeavesTheLogWhereItIs) {
  auto output = WorkerOutput::Open(1, directory_);
  ASSERT_TRUE(output.ok());
  std::ofstream(directory_ + "/file") << "in the way";
  EXPECT_FALSE(output->MoveTo(directory_ + "/file/logs").ok());
  Print(*output, "still here\n");
  output->Read();
  EXPECT_EQ(Read(directory_ + "/worker-1.log"), "still here\n");
}

TEST_F(WorkerOutputTest, MissingDirectoryIsAnError) {
  EXPECT_EQ(WorkerOutput::Open(0, directory_ + "/none").status().code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace troupe::runtime
