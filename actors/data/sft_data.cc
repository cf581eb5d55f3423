#include "actors/data/sft_data.h"

#include <filesystem>

#include "absl/strings/str_join.h"
#include "engine/chat/chat_template.h"
#include "engine/model/config.h"
#include "runtime/base/status.h"

namespace troupe::actors {
namespace fs = std::filesystem;

absl::StatusOr<std::string> ShippedPath(const std::string& name) {
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error).parent_path();
  // build/recipes/X or build/tools/X of a checkout; PREFIX/libexec/troupe/recipes/X or PREFIX/bin/X when installed.
  const std::vector<std::string> places = {(program / "../../recipes" / name).lexically_normal().string(),
                                           (program / "../../../share/troupe" / name).lexically_normal().string(),
                                           (program / "../share/troupe" / name).lexically_normal().string(),
                                           std::string(TROUPE_SOURCE_DIR "/recipes/") + name};
  for (const std::string& place : places) {
    if (fs::exists(place, error)) return place;
  }
  return absl::NotFoundError(absl::StrCat(name, " is in none of ", absl::StrJoin(places, ", ")));
}

absl::StatusOr<SftData> LoadSftData(const SftOptions& options) {
  SftData data;
  TROUPE_ASSIGN_OR_RETURN(data.tokenizer, engine::Tokenizer::Load(options.model));
  absl::StatusOr<std::shared_ptr<const engine::ChatTemplate>> chat = engine::ChatTemplate::Recognise(data.tokenizer->chat_template());
  if (!chat.ok()) return Annotate(chat.status(), options.model);
  TROUPE_ASSIGN_OR_RETURN(const engine::DecoderConfig config, engine::ReadDecoderConfig(options.model));

  engine::DatasetOptions dataset_options;
  dataset_options.max_length = options.max_length > 0 ? options.max_length : config.max_position_embeddings;
  TROUPE_ASSIGN_OR_RETURN(dataset_options.truncation_strategy, engine::ParseTruncationStrategy(options.truncation_strategy));
  dataset_options.strict = options.strict;
  TROUPE_ASSIGN_OR_RETURN(data.train, engine::Dataset::Load(options.dataset, *data.tokenizer, **chat, dataset_options));
  const auto seed = static_cast<uint64_t>(options.seed);
  if (!options.val_dataset.empty()) {
    TROUPE_ASSIGN_OR_RETURN(data.eval, engine::Dataset::Load(options.val_dataset, *data.tokenizer, **chat, dataset_options));
  } else if (options.split_dataset_ratio > 0) {
    TROUPE_ASSIGN_OR_RETURN(auto parts, data.train.Split(options.split_dataset_ratio, seed));
    data.train = std::move(parts.first);
    data.eval = std::move(parts.second);
  }
  if (options.dataset_shuffle) data.train.Shuffle(seed);
  return data;
}

}  // namespace troupe::actors
