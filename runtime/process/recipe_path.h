/// Finds the program that somebody means by `recipes/sft_lora`.
#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace troupe::runtime {

/// A path to a program as it was typed, or one beside the launcher: `launcher_directory`/../recipes (a build) or
/// `launcher_directory`/../libexec/troupe/recipes (an installation), with or without `recipes/` in front.
///
/// Errors  NOT_FOUND listing the recipes there are; PERMISSION_DENIED when what was typed is there and is no program.
absl::StatusOr<std::string> FindRecipe(const std::string& typed, const std::string& launcher_directory);

/// The directory of the running program.
std::string ProgramDirectory();

}  // namespace troupe::runtime
