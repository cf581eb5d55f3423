/// Runs a recipe over a mesh of workers: `launcher --mesh 2x2 recipes/sft_lora`.
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "runtime/control/client.h"
#include "runtime/process/job_runner.h"
#include "runtime/process/launch_options.h"
#include "runtime/process/recipe_path.h"

namespace {

using troupe::runtime::JobSpec;
using troupe::runtime::LaunchOptions;

constexpr int kExitFailed = 1;
constexpr int kExitUsage = 2;

int Fail(const absl::Status& status, int exit_code) {
  std::fprintf(stderr, "launcher: %s\n", std::string(status.message()).c_str());
  if (exit_code == kExitUsage) std::fprintf(stderr, "launcher --help shows what it understands\n");
  return exit_code;
}

/// Becomes the recipe, which then runs everything in its own process.
int Become(const std::vector<std::string>& command) {
  std::vector<char*> words;
  for (const std::string& word : command) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  std::vector<char*> environment;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    if (!troupe::runtime::IsIdentityVariable(*variable)) environment.push_back(*variable);
  }
  environment.push_back(nullptr);
  execve(words[0], words.data(), environment.data());
  std::fprintf(stderr, "launcher: cannot execute %s: %s\n", words[0], std::strerror(errno));
  return kExitFailed;
}

int Main(const std::vector<std::string>& arguments) {
  if (arguments.empty()) {
    std::fputs(troupe::runtime::LaunchHelp().c_str(), stdout);
    return kExitUsage;
  }
  const absl::StatusOr<LaunchOptions> options = troupe::runtime::ParseLaunchOptions(arguments);
  if (!options.ok()) return Fail(options.status(), kExitUsage);
  if (options->help) {
    std::fputs(troupe::runtime::LaunchHelp().c_str(), stdout);
    return 0;
  }
  const absl::StatusOr<std::string> recipe =
      troupe::runtime::FindRecipe(options->recipe, troupe::runtime::ProgramDirectory());
  if (!recipe.ok()) return Fail(recipe.status(), kExitUsage);

  JobSpec job;
  job.command = {*recipe};
  for (std::string& argument : options->RecipeArguments()) job.command.push_back(std::move(argument));
  if (options->local || options->recipe_help()) return Become(job.command);
  job.num_workers = options->num_workers;
  job.mesh = options->mesh;
  const absl::StatusOr<int> exit_code = troupe::runtime::RunJob(job);
  return exit_code.ok() ? *exit_code : Fail(exit_code.status(), kExitFailed);
}

}  // namespace

int main(int argc, char** argv) { return Main({argv + 1, argv + argc}); }
