#include "runtime/process/recipe_path.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace troupe::runtime {
namespace {

namespace fs = std::filesystem;

constexpr char kRecipes[] = "recipes";

bool IsProgram(const fs::path& path) {
  std::error_code error;
  return fs::is_regular_file(path, error) && access(path.c_str(), X_OK) == 0;
}

std::vector<fs::path> Homes(const std::string& launcher_directory) {
  const fs::path prefix = fs::path(launcher_directory).parent_path();
  return {prefix, prefix / "libexec" / "troupe"};
}

std::vector<std::string> ListRecipes(const std::string& launcher_directory) {
  std::vector<std::string> names;
  for (const fs::path& home : Homes(launcher_directory)) {
    std::error_code error;
    for (const auto& entry : fs::directory_iterator(home / kRecipes, error)) {
      if (IsProgram(entry.path())) names.push_back(absl::StrCat(kRecipes, "/", entry.path().filename().string()));
    }
  }
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace

absl::StatusOr<std::string> FindRecipe(const std::string& typed, const std::string& launcher_directory) {
  std::error_code error;
  if (IsProgram(typed)) return fs::absolute(typed, error).string();
  for (const fs::path& home : Homes(launcher_directory)) {
    if (fs::path(typed).is_absolute()) break;
    for (const fs::path& path : {home / typed, home / kRecipes / typed}) {
      if (IsProgram(path)) return path.lexically_normal().string();
    }
  }
  if (fs::is_regular_file(typed, error)) {
    return absl::PermissionDeniedError(absl::StrCat(typed, " is no program: a recipe is one that was built"));
  }
  const std::vector<std::string> names = ListRecipes(launcher_directory);
  return absl::NotFoundError(absl::StrCat(
      "no recipe ", typed, ", neither here nor beside the launcher; ",
      names.empty() ? absl::StrCat("there are none below ", fs::path(launcher_directory).parent_path().string())
                    : absl::StrCat("there are: ", absl::StrJoin(names, ", "))));
}

std::string ProgramDirectory() {
  std::error_code error;
  return fs::read_symlink("/proc/self/exe", error).parent_path().string();
}

}  // namespace troupe::runtime
