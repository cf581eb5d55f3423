#include "runtime/process/job_directory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"

namespace troupe::runtime {
namespace {

namespace fs = std::filesystem;

class JobDirectoryTest : public ::testing::Test {
 protected:
  void SetUp() override {
    char path[] = "/tmp/job_directory_test.XXXXXX";
    ASSERT_NE(mkdtemp(path), nullptr);
    parent_ = path;
  }
  void TearDown() override { fs::remove_all(parent_); }
  std::string parent_;
};

TEST_F(JobDirectoryTest, LivesAsLongAsTheJob) {
  std::string path;
  {
    auto directory = JobDirectory::CreateBelow(parent_);
    ASSERT_TRUE(directory.ok()) << directory.status();
    path = (*directory)->path();
    struct stat found = {};
    ASSERT_EQ(stat(path.c_str(), &found), 0);
    EXPECT_EQ(found.st_mode & 0777, 0700u);
    std::ofstream(path + "/worker-0.log") << "text";
  }
  EXPECT_FALSE(fs::exists(path));
}

TEST_F(JobDirectoryTest, WhatAKilledProcessLeftGoesAtTheNextStart) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const pid_t pid = fork();
  if (pid == 0) {
    auto directory = JobDirectory::CreateBelow(parent_);
    const std::string path = directory.ok() ? (*directory)->path() : "";
    _exit(write(ends[1], path.data(), path.size()) > 0 ? 0 : 1);  // without a destructor, as if it had been killed
  }
  close(ends[1]);
  char buffer[4096];
  const ssize_t got = read(ends[0], buffer, sizeof(buffer));
  close(ends[0]);
  ASSERT_GT(got, 0);
  const std::string left(buffer, static_cast<size_t>(got));
  ASSERT_EQ(waitpid(pid, nullptr, 0), pid);
  ASSERT_TRUE(fs::exists(left));
  const auto mine = JobDirectory::CreateBelow(parent_);
  ASSERT_TRUE(mine.ok());
  EXPECT_FALSE(fs::exists(left));
  const auto second = JobDirectory::CreateBelow(parent_);
  EXPECT_TRUE(fs::exists((*mine)->path())) << "that of a living process stays";
}

TEST_F(JobDirectoryTest, KeptOneStays) {
  std::string path;
  {
    auto directory = JobDirectory::CreateBelow(parent_);
    ASSERT_TRUE(directory.ok());
    (*directory)->Keep();
    path = (*directory)->path();
  }
  EXPECT_TRUE(fs::exists(path));
}

TEST_F(JobDirectoryTest, PlaceThatIsNotOursIsRefused) {
  const std::string home = absl::StrCat(parent_, "/troupe-", geteuid());
  fs::create_directory_symlink("/tmp", home);
  EXPECT_EQ(JobDirectory::CreateBelow(parent_).status().code(), absl::StatusCode::kPermissionDenied);
}

}  // namespace
}  // namespace troupe::runtime
