#include "actors/report/run_directory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <latch>
#include <set>
#include <sstream>
#include <thread>
#include <vector>

namespace troupe::actors {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class RunDirectoryTest : public ::testing::Test {
 protected:
  RunDirectoryTest() {
    std::string name = (fs::temp_directory_path() / "run_directory_XXXXXX").string();
    EXPECT_NE(mkdtemp(name.data()), nullptr);
    root_ = name;
  }
  ~RunDirectoryTest() override { fs::remove_all(root_); }

  RunDirectoryOptions Options() const {
    RunDirectoryOptions options;
    options.output_dir = (root_ / "output/tiny").string();
    options.now = absl::FromCivil(absl::CivilSecond(2025, 1, 2, 13, 4, 5), absl::UTCTimeZone());
    options.time_zone = absl::UTCTimeZone();
    return options;
  }
  std::string NameOfNext(const RunDirectoryOptions& options) const {
    const auto directory = RunDirectory::Create(options);
    EXPECT_TRUE(directory.ok()) << directory.status();
    return directory.ok() ? fs::path(directory->path()).filename().string() : "";
  }
  static std::string Read(const std::string& path) {
    std::ostringstream text;
    text << std::ifstream(path).rdbuf();
    return text.str();
  }

  fs::path root_;
};

TEST_F(RunDirectoryTest, VersionsCountUpAndCarryTheTime) {
  EXPECT_EQ(NameOfNext(Options()), "v0-20250102-130405");
  EXPECT_EQ(NameOfNext(Options()), "v1-20250102-130405");
  RunDirectoryOptions later = Options();
  later.now += absl::Hours(24);
  EXPECT_EQ(NameOfNext(later), "v2-20250103-130405");
}

TEST_F(RunDirectoryTest, NumbersAreNeverUsedAgainAndOtherNamesDoNotCount) {
  for (const char* name : {"v7-20240101-000000", "v10-x", "vx-20240101-000000", "v-1-x", "checkpoint-99", "v99"}) {
    fs::create_directories(root_ / "output/tiny" / name);
  }
  EXPECT_EQ(NameOfNext(Options()), "v11-20250102-130405");
}

TEST_F(RunDirectoryTest, WithoutVersionsItIsTheOutputFolderItself) {
  RunDirectoryOptions options = Options();
  options.add_version = false;
  for (int i = 0; i < 2; ++i) {
    const auto directory = RunDirectory::Create(options);
    ASSERT_TRUE(directory.ok()) << directory.status();
    EXPECT_EQ(directory->path(), options.output_dir);
    EXPECT_TRUE(fs::is_directory(options.output_dir));
  }
}

TEST_F(RunDirectoryTest, JobsThatStartAtOnceGetDifferentNumbers) {
  // Their times differ, so that nothing but the lock keeps them from taking the same number.
  constexpr int kJobs = 64;
  std::vector<std::string> names(kJobs);
  std::latch start(kJobs);
  std::vector<std::thread> threads;
  for (size_t job = 0; job < kJobs; ++job) {
    threads.emplace_back([&, job] {
      RunDirectoryOptions options = Options();
      options.now += absl::Seconds(static_cast<int>(job));
      start.arrive_and_wait();
      names[job] = NameOfNext(options);
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::set<std::string> numbers;
  for (const std::string& name : names) numbers.insert(name.substr(0, name.find('-')));
  EXPECT_EQ(numbers.size(), kJobs);
}

TEST_F(RunDirectoryTest, AWriteReplacesTheFileAndLeavesNothingElse) {
  const auto directory = RunDirectory::Create(Options());
  ASSERT_TRUE(directory.ok()) << directory.status();
  ASSERT_TRUE(directory->Write("args.json", "{\"a\": 1}").ok());
  ASSERT_TRUE(directory->Write("args.json", "{}").ok());
  EXPECT_EQ(Read(directory->path("args.json")), "{}");
  EXPECT_EQ(std::distance(fs::directory_iterator(directory->path()), fs::directory_iterator()), 1);
}

TEST_F(RunDirectoryTest, ErrorsNameThePathAndTheReason) {
  std::ofstream(root_ / "file") << "x";
  RunDirectoryOptions options = Options();
  options.output_dir = (root_ / "file/below").string();
  const auto below_a_file = RunDirectory::Create(options);
  EXPECT_THAT(std::string(below_a_file.status().message()), HasSubstr("file/below"));
  EXPECT_THAT(std::string(below_a_file.status().message()), HasSubstr("Not a directory"));

  const auto directory = RunDirectory::Create(Options());
  ASSERT_TRUE(directory.ok()) << directory.status();
  EXPECT_THAT(std::string(directory->Write("no/folder.json", "x").message()), HasSubstr("no/folder.json"));
  // A target that cannot be replaced leaves no temporary file behind.
  fs::create_directories(directory->path("taken/inside"));
  EXPECT_FALSE(directory->Write("taken", "x").ok());
  EXPECT_EQ(std::distance(fs::directory_iterator(directory->path()), fs::directory_iterator()), 1);
}

}  // namespace
}  // namespace troupe::actors
