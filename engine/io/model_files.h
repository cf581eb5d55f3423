/// The weights of models and adapters as folders: Hugging Face's layout for models, PEFT's for adapters.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "engine/io/safetensors.h"
#include "engine/lora/lora_config.h"
#include "engine/model/decoder.h"

namespace troupe::engine {

/// All tensors of a folder: `model.safetensors`, or the shards that `model.safetensors.index.json` names.
class WeightFolder {
 public:
  static absl::StatusOr<std::shared_ptr<const WeightFolder>> Open(const std::string& dir);
  /// One file, such as adapter_model.safetensors.
  static absl::StatusOr<std::shared_ptr<const WeightFolder>> OpenFile(const std::string& path);

  /// Errors  NOT_FOUND naming tensor and folder; INVALID_ARGUMENT when its shape is another, naming both
  absl::StatusOr<const TensorEntry*> Find(const std::string& name, const Shape& shape) const;

 private:
  std::string where_;
  std::vector<std::shared_ptr<const SafetensorsFile>> files_;
  std::map<std::string, const TensorEntry*> tensors_;
};

/// Reads parameters of a model folder, a range at a time from the mapped files.
absl::StatusOr<WeightReader> ModelWeights(const std::string& dir);
/// Reads adapter parameters of a PEFT folder.
absl::StatusOr<WeightReader> AdapterWeights(const std::string& dir);

/// Writes what a decoder visits into a folder that is there.
class ModelFilesWriter {
 public:
  /// adapter_config.json and adapter_model.safetensors (f32).
  static absl::StatusOr<std::unique_ptr<ModelFilesWriter>> CreateAdapter(const std::string& dir, const LoraConfig& lora, Decoder& decoder);
  /// config.json, model.safetensors in `dtype`, and the tokenizer's files copied from `source`, where they exist.
  static absl::StatusOr<std::unique_ptr<ModelFilesWriter>> CreateModel(const std::string& dir, const std::string& source, DType dtype,
                                                                       Decoder& decoder);
  absl::Status Write(const ParameterSpec& parameter, const Tensor& values);
  absl::Status Finish();

 private:
  explicit ModelFilesWriter(std::unique_ptr<SafetensorsWriter> writer) : writer_(std::move(writer)) {}
  std::unique_ptr<SafetensorsWriter> writer_;
};

/// Copies the files that belong to a tokenizer.
absl::Status CopyTokenizerFiles(const std::string& from, const std::string& to);

}  // namespace troupe::engine
