/// The weights of models and adapters as folders: Hugging Face's layout for models, PEFT's for adapters.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "engine/io/safetensors.h"
#include "engine/io/sharded_writer.h"
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
  const std::map<std::string, const TensorEntry*>& tensors() const { return tensors_; }

 private:
  std::string where_;
  std::vector<std::shared_ptr<const SafetensorsFile>> files_;
  std::map<std::string, const TensorEntry*> tensors_;
};

/// Reads parameters of a model folder, a range at a time from the mapped files.
absl::StatusOr<WeightReader> ModelWeights(const std::string& dir);
/// Reads adapter parameters of a PEFT folder.
///
/// Errors  UNIMPLEMENTED naming a tensor that adapts something we do not adapt (embeddings, lm_head, DoRA's magnitudes, ...)
absl::StatusOr<WeightReader> AdapterWeights(const std::string& dir);
/// The same for an adapter that must belong to this model.
///
/// Errors  also INVALID_ARGUMENT naming a tensor of a layer that the model does not have
absl::StatusOr<WeightReader> AdapterWeights(const std::string& dir, const DecoderConfig& config);

/// Writes what a decoder visits into a folder that is there.
class ModelFilesWriter {
 public:
  /// adapter_config.json and adapter_model.safetensors (f32).
  static absl::StatusOr<std::unique_ptr<ModelFilesWriter>> CreateAdapter(const std::string& dir, const LoraConfig& lora, Decoder& decoder);
  /// config.json, the weights in `dtype` (in shards when they are many), and the tokenizer's files copied from `source`, where they exist.
  static absl::StatusOr<std::unique_ptr<ModelFilesWriter>> CreateModel(const std::string& dir, const std::string& source, DType dtype,
                                                                       Decoder& decoder);
  absl::Status Write(const ParameterSpec& parameter, const Tensor& values);
  absl::Status Finish();

 private:
  explicit ModelFilesWriter(std::unique_ptr<ShardedWriter> writer) : writer_(std::move(writer)) {}
  std::unique_ptr<ShardedWriter> writer_;
};

/// Copies the files that belong to a tokenizer, and generation_config.json.
absl::Status CopyTokenizerFiles(const std::string& from, const std::string& to);

/// Whether writing a model to `dir` loses nothing but an older model: it is not there, empty, or holds only files that belong to one.
///
/// Errors  FAILED_PRECONDITION naming what else is there
absl::Status CheckReplaceable(const std::string& dir);

}  // namespace troupe::engine
