/// The training and evaluation samples of a run, tokenised.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "actors/options/sft_options.h"
#include "engine/data/dataset.h"
#include "engine/tokenizer/tokenizer.h"

namespace troupe::actors {

struct SftData {
  std::shared_ptr<const engine::Tokenizer> tokenizer;
  engine::Dataset train;
  std::optional<engine::Dataset> eval;  ///< none without --val_dataset and --split_dataset_ratio
};

/// Reads the files with the model's own tokenizer and chat template.
///
/// Errors  of the files, by name and line with --strict true; an empty dataset
absl::StatusOr<SftData> LoadSftData(const SftOptions& options);

/// A file that the repository ships (below recipes/), wherever this program is installed.
///
/// Errors  NOT_FOUND naming the places where it was looked for
absl::StatusOr<std::string> ShippedPath(const std::string& name);

}  // namespace troupe::actors
