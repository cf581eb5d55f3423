#include "engine/io/model_files.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <iterator>
#include <nlohmann/json.hpp>
#include <set>

#include "engine/io/atomic_directory.h"
#include "runtime/base/status.h"

namespace troupe::engine {
namespace fs = std::filesystem;

namespace {

constexpr const char* kTokenizerFiles[] = {"tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "generation_config.json",
                                           "vocab.json",     "merges.txt",            "added_tokens.json",       "chat_template.jinja"};

absl::StatusOr<std::set<std::string>> ShardNames(const std::string& index_path) {
  TROUPE_ASSIGN_OR_RETURN(const std::string text, ReadFile(index_path));
  const auto json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || !json.contains("weight_map") || !json["weight_map"].is_object()) {
    return absl::InvalidArgumentError(absl::StrCat(index_path, ": has no weight_map"));
  }
  std::set<std::string> names;
  for (const auto& [tensor, file] : json["weight_map"].items()) {
    if (!file.is_string() || file.get<std::string>().find('/') != std::string::npos) {
      return absl::InvalidArgumentError(absl::StrCat(index_path, ": tensor ", tensor, " lies in ", file.dump(), ", which is no file name"));
    }
    names.insert(file.get<std::string>());
  }
  return names;
}

absl::StatusOr<WeightReader> ReaderOf(std::shared_ptr<const WeightFolder> folder) {
  return WeightReader([folder](const ParameterSpec& spec, int64_t begin, int64_t count, float* values) -> absl::Status {
    TROUPE_ASSIGN_OR_RETURN(const TensorEntry* entry, folder->Find(spec.name, spec.shape));
    return ReadElements(*entry, begin, count, values);
  });
}

/// base_model.model.model.layers.I.BLOCK.MODULE.lora_A.weight with MODULE among `modules`: its layer I, or -1.
int64_t LayerOfAdapter(const std::string& name, const std::vector<std::string>& modules) {
  const std::string head = "base_model.model.model.layers.";
  if (name.rfind(head, 0) != 0) return -1;
  size_t at = head.size();
  int64_t layer = 0;
  while (at < name.size() && at < head.size() + 9 && std::isdigit(static_cast<unsigned char>(name[at])) != 0) {
    layer = layer * 10 + (name[at++] - '0');
  }
  if (at == head.size()) return -1;
  for (const std::string& module : modules) {
    for (const char* block : {".self_attn.", ".mlp."}) {
      for (const char* which : {".lora_A.weight", ".lora_B.weight"}) {
        if (name.compare(at, std::string::npos, block + module + which) == 0) return layer;
      }
    }
  }
  return -1;
}

absl::StatusOr<WeightReader> CheckedAdapterWeights(const std::string& dir, const DecoderConfig* config) {
  TROUPE_ASSIGN_OR_RETURN(const LoraConfig lora, ReadLoraConfig(dir));
  const std::string path = dir + "/adapter_model.safetensors";
  TROUPE_ASSIGN_OR_RETURN(std::shared_ptr<const WeightFolder> folder, WeightFolder::OpenFile(path));
  for (const auto& [name, entry] : folder->tensors()) {
    const int64_t layer = LayerOfAdapter(name, lora.target_modules);
    if (layer < 0) {
      return absl::UnimplementedError(absl::StrCat(path, ": tensor ", name, " adapts something that adapter_config.json does not name"));
    }
    if (config != nullptr && layer >= config->num_hidden_layers) {
      return absl::InvalidArgumentError(absl::StrCat(path, ": tensor ", name, " belongs to a layer that the model does not have: it has ",
                                                     config->num_hidden_layers));
    }
  }
  return ReaderOf(std::move(folder));
}

std::vector<SafetensorsWriter::Entry> EntriesOf(Decoder& decoder, bool adapter, DType dtype) {
  std::vector<SafetensorsWriter::Entry> entries;
  for (const auto& block : decoder.blocks()) {
    for (const Parameter* parameter : block->parameters()) {
      const bool is_adapter = parameter->spec().name.rfind("base_model.", 0) == 0;
      if (is_adapter == adapter) entries.push_back({parameter->spec().name, dtype, parameter->spec().shape});
    }
  }
  return entries;
}

}  // namespace

absl::StatusOr<std::shared_ptr<const WeightFolder>> WeightFolder::OpenFile(const std::string& path) {
  auto folder = std::make_shared<WeightFolder>();
  folder->where_ = path;
  TROUPE_ASSIGN_OR_RETURN(std::shared_ptr<const SafetensorsFile> file, SafetensorsFile::Open(path));
  for (const auto& [name, entry] : file->tensors()) folder->tensors_[name] = &entry;
  folder->files_.push_back(std::move(file));
  return std::shared_ptr<const WeightFolder>(std::move(folder));
}

absl::StatusOr<std::shared_ptr<const WeightFolder>> WeightFolder::Open(const std::string& dir) {
  if (!fs::is_directory(dir)) return absl::NotFoundError(absl::StrCat(dir, " is not a folder"));
  const std::string single = dir + "/model.safetensors", index = dir + "/model.safetensors.index.json";
  if (fs::exists(single)) return OpenFile(single);
  if (!fs::exists(index)) {
    return absl::NotFoundError(absl::StrCat(dir, " has neither model.safetensors nor model.safetensors.index.json",
                                            fs::exists(dir + "/pytorch_model.bin") ? "; pytorch_model.bin is not read: save it as safetensors" : ""));
  }
  TROUPE_ASSIGN_OR_RETURN(const std::set<std::string> names, ShardNames(index));
  auto folder = std::make_shared<WeightFolder>();
  folder->where_ = dir;
  for (const std::string& name : names) {
    TROUPE_ASSIGN_OR_RETURN(std::shared_ptr<const SafetensorsFile> file, SafetensorsFile::Open(dir + "/" + name));
    for (const auto& [tensor, entry] : file->tensors()) {
      if (!folder->tensors_.emplace(tensor, &entry).second) {
        return absl::InvalidArgumentError(absl::StrCat(dir, ": tensor ", tensor, " is in two shards"));
      }
    }
    folder->files_.push_back(std::move(file));
  }
  return std::shared_ptr<const WeightFolder>(std::move(folder));
}

absl::StatusOr<const TensorEntry*> WeightFolder::Find(const std::string& name, const Shape& shape) const {
  const auto found = tensors_.find(name);
  if (found == tensors_.end()) return absl::NotFoundError(absl::StrCat(where_, " has no tensor ", name));
  if (found->second->shape != shape) {
    return absl::InvalidArgumentError(absl::StrCat(where_, ": tensor ", name, " has shape ", ToString(found->second->shape),
                                                   ", the config asks for ", ToString(shape)));
  }
  return found->second;
}

absl::StatusOr<WeightReader> ModelWeights(const std::string& dir) {
  TROUPE_ASSIGN_OR_RETURN(std::shared_ptr<const WeightFolder> folder, WeightFolder::Open(dir));
  return ReaderOf(std::move(folder));
}

absl::StatusOr<WeightReader> AdapterWeights(const std::string& dir) { return CheckedAdapterWeights(dir, nullptr); }

absl::StatusOr<WeightReader> AdapterWeights(const std::string& dir, const DecoderConfig& config) {
  return CheckedAdapterWeights(dir, &config);
}

absl::Status CopyTokenizerFiles(const std::string& from, const std::string& to) {
  for (const char* name : kTokenizerFiles) {
    std::error_code error;
    const fs::path source = fs::path(from) / name;
    if (!fs::exists(source, error) || fs::equivalent(from, to, error)) continue;
    fs::copy_file(source, fs::path(to) / name, fs::copy_options::overwrite_existing, error);
    if (error) return absl::UnavailableError(absl::StrCat("cannot copy ", source.string(), " to ", to, ": ", error.message()));
  }
  return absl::OkStatus();
}

absl::Status CheckReplaceable(const std::string& dir) {
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(dir, error)) {
    const std::string name = entry.path().filename().string();
    const bool ours = name == "config.json" || name == "model.safetensors.index.json" ||
                      (name.rfind("model", 0) == 0 && entry.path().extension() == ".safetensors") ||
                      std::find(std::begin(kTokenizerFiles), std::end(kTokenizerFiles), name) != std::end(kTokenizerFiles);
    if (!ours || !entry.is_regular_file(error)) {
      return absl::FailedPreconditionError(absl::StrCat(dir, " holds ", name, ", which would be lost; name another folder"));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<ModelFilesWriter>> ModelFilesWriter::CreateAdapter(const std::string& dir, const LoraConfig& lora,
                                                                                  Decoder& decoder) {
  TROUPE_RETURN_IF_ERROR(WriteFile(dir + "/adapter_config.json", LoraConfigToJson(lora)));
  // PEFT reads adapters from one file only.
  TROUPE_ASSIGN_OR_RETURN(std::unique_ptr<ShardedWriter> writer,
                          ShardedWriter::Create({dir, "adapter_model", ~uint64_t{0}}, EntriesOf(decoder, true, DType::kF32)));
  return std::unique_ptr<ModelFilesWriter>(new ModelFilesWriter(std::move(writer)));
}

absl::StatusOr<std::unique_ptr<ModelFilesWriter>> ModelFilesWriter::CreateModel(const std::string& dir, const std::string& source,
                                                                                DType dtype, Decoder& decoder) {
  DecoderConfig config = decoder.config();
  config.dtype = dtype;
  TROUPE_RETURN_IF_ERROR(WriteFile(dir + "/config.json", DecoderConfigToJson(config)));
  TROUPE_RETURN_IF_ERROR(CopyTokenizerFiles(source, dir));
  TROUPE_ASSIGN_OR_RETURN(std::unique_ptr<ShardedWriter> writer, ShardedWriter::Create({.dir = dir}, EntriesOf(decoder, false, dtype)));
  return std::unique_ptr<ModelFilesWriter>(new ModelFilesWriter(std::move(writer)));
}

absl::Status ModelFilesWriter::Write(const ParameterSpec& parameter, const Tensor& values) {
  return writer_->Write(parameter.name, {values.f32(), static_cast<size_t>(values.size())});
}

absl::Status ModelFilesWriter::Finish() { return writer_->Finish(); }

}  // namespace troupe::engine
