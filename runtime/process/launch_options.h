/// The launcher's command line.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace troupe::runtime {

struct LaunchOptions {
  bool help = false;
  std::string mesh;      ///< as typed; empty when not given
  int num_workers = 1;   ///< as many as the mesh has ranks, or more when asked for
  bool local = false;    ///< everything in the recipe's own process
  bool deterministic = false;
  std::string recipe;    ///< as typed
  std::vector<std::string> recipe_flags;

  /// What the recipe gets: its own flags after those of ours that it shares.
  std::vector<std::string> RecipeArguments() const;
  /// The recipe is only to explain itself.
  bool recipe_help() const;
};

/// Reads `[flags] RECIPE [recipe flags]`; `--mesh`, `--local` and `--deterministic` also count among the recipe's flags.
///
/// Errors  INVALID_ARGUMENT naming the flag or value, and the nearest flag there is.
absl::StatusOr<LaunchOptions> ParseLaunchOptions(const std::vector<std::string>& arguments);

std::string LaunchHelp();

}  // namespace troupe::runtime
