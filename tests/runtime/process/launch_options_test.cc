#include "runtime/process/launch_options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace troupe::runtime {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string Error(const std::vector<std::string>& arguments) {
  return std::string(ParseLaunchOptions(arguments).status().message());
}

TEST(LaunchOptionsTest, MeshGivesTheNumberOfWorkers) {
  for (const auto& [mesh, workers] :
       std::vector<std::pair<std::string, int>>{{"2x2", 4}, {"4", 4}, {"dp=2,fsdp=3", 6}, {"1", 1}}) {
    const auto options = ParseLaunchOptions({"--mesh", mesh, "r"});
    ASSERT_TRUE(options.ok()) << options.status();
    EXPECT_EQ(options->num_workers, workers) << mesh;
    EXPECT_EQ(options->mesh, mesh);
  }
  EXPECT_EQ(ParseLaunchOptions({"r"})->num_workers, 1);
}

TEST(LaunchOptionsTest, RecipesFlagsAreItsOwn) {
  const auto options = ParseLaunchOptions({"--mesh=2", "recipes/r", "--model", "M", "--num_workers", "x", "-y"});
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_EQ(options->recipe, "recipes/r");
  EXPECT_THAT(options->RecipeArguments(), ElementsAre("--mesh", "2", "--model", "M", "--num_workers", "x", "-y"));
}

TEST(LaunchOptionsTest, MeshAndModeMayFollowTheRecipe) {
  const auto options = ParseLaunchOptions({"r", "--model", "M", "--mesh", "2x2", "--deterministic"});
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_EQ(options->num_workers, 4);
  EXPECT_TRUE(options->local) << "one thread is one process";
  EXPECT_THAT(options->RecipeArguments(), ElementsAre("--mesh", "2x2", "--deterministic", "--model", "M"));
}

TEST(LaunchOptionsTest, TwoMeshesMustAgree) {
  EXPECT_THAT(Error({"--mesh", "2", "r", "--mesh", "4"}), HasSubstr("twice, as 2 and as 4"));
  EXPECT_TRUE(ParseLaunchOptions({"--mesh", "2", "r", "--mesh", "2"}).ok());
}

TEST(LaunchOptionsTest, MoreWorkersThanTheMeshNeedsAreFineAndFewerAreNot) {
  EXPECT_EQ(ParseLaunchOptions({"--mesh", "2", "--num-workers", "3", "r"})->num_workers, 3);
  EXPECT_THAT(Error({"--mesh", "2x2", "--num_workers", "3", "r"}), HasSubstr("needs 4 workers, --num_workers is 3"));
}

TEST(LaunchOptionsTest, MistakesAreNamed) {
  EXPECT_THAT(Error({"--mseh", "2", "r"}), HasSubstr("no flag --mseh, did you mean --mesh?"));
  EXPECT_THAT(Error({"--locale", "r"}), HasSubstr("did you mean --local?"));
  EXPECT_THAT(Error({"--mesh"}), HasSubstr("--mesh needs a value"));
  EXPECT_THAT(Error({"--mesh", "0x2", "r"}), HasSubstr("--mesh: "));
  EXPECT_THAT(Error({"--num_workers", "many", "r"}), HasSubstr("\"many\""));
  EXPECT_THAT(Error({"--mesh", "2"}), HasSubstr("which recipe?"));
}

TEST(LaunchOptionsTest, HelpOfTheRecipeIsItsOwn) {
  EXPECT_TRUE(ParseLaunchOptions({"--help"})->help);
  const auto options = ParseLaunchOptions({"r", "--help"});
  EXPECT_FALSE(options->help);
  EXPECT_TRUE(options->recipe_help());
}

}  // namespace
}  // namespace troupe::runtime
