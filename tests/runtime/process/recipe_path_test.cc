#include "runtime/process/recipe_path.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

namespace troupe::runtime {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class RecipePathTest : public ::testing::Test {
 protected:
  void SetUp() override {
    char path[] = "/tmp/recipe_path_test.XXXXXX";
    ASSERT_NE(mkdtemp(path), nullptr);
    root_ = path;
    home_ = fs::current_path();
    fs::create_directories(root_ + "/cwd");
    fs::current_path(root_ + "/cwd");
  }
  void TearDown() override {
    fs::current_path(home_);
    fs::remove_all(root_);
  }
  void Make(const std::string& path, mode_t mode) {
    fs::create_directories(fs::path(root_ + "/" + path).parent_path());
    std::ofstream(root_ + "/" + path) << "#!/bin/sh\n";
    ASSERT_EQ(chmod((root_ + "/" + path).c_str(), mode), 0);
  }
  std::string root_;
  fs::path home_;
};

TEST_F(RecipePathTest, ProgramHereComesFirst) {
  Make("cwd/recipes/r", 0755);
  Make("build/recipes/r", 0755);
  EXPECT_EQ(*FindRecipe("recipes/r", root_ + "/build/tools"), root_ + "/cwd/recipes/r");
}

TEST_F(RecipePathTest, BuildsRecipesAreBesideTheLauncher) {
  Make("build/recipes/r", 0755);
  Make("cwd/recipes/r.cc", 0644);
  EXPECT_EQ(*FindRecipe("recipes/r", root_ + "/build/tools"), root_ + "/build/recipes/r");
  EXPECT_EQ(*FindRecipe("r", root_ + "/build/tools"), root_ + "/build/recipes/r");
}

TEST_F(RecipePathTest, InstalledRecipesAreInLibexec) {
  Make("prefix/libexec/troupe/recipes/r", 0755);
  EXPECT_EQ(*FindRecipe("recipes/r", root_ + "/prefix/bin"), root_ + "/prefix/libexec/troupe/recipes/r");
}

TEST_F(RecipePathTest, MissingOneIsAnErrorThatListsTheOthers) {
  Make("build/recipes/sft", 0755);
  Make("build/recipes/grpo", 0755);
  Make("build/recipes/notes.txt", 0644);
  const auto missing = FindRecipe("recipes/stf", root_ + "/build/tools");
  EXPECT_EQ(missing.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(missing.status().message()), HasSubstr("there are: recipes/grpo, recipes/sft"));
}

TEST_F(RecipePathTest, SourceFileIsNoProgram) {
  Make("cwd/recipes/r.cc", 0644);
  EXPECT_EQ(FindRecipe("recipes/r.cc", root_ + "/build/tools").status().code(), absl::StatusCode::kPermissionDenied);
}

}  // namespace
}  // namespace troupe::runtime
