#include "engine/lora/merge.h"

#include <filesystem>
#include <optional>

#include "engine/io/atomic_directory.h"
#include "engine/io/model_files.h"
#include "engine/lora/lora_config.h"
#include "engine/model/decoder.h"
#include "engine/model/decoder_weights.h"
#include "runtime/base/status.h"

namespace troupe::engine {
namespace {

struct Adapter {
  LoraConfig config;
  WeightReader weights;

  bool Adapts(const std::string& weight) const {
    for (const std::string& module : config.target_modules) {
      const std::string end = "." + module + ".weight";
      if (weight.size() > end.size() && weight.compare(weight.size() - end.size(), end.size(), end) == 0) return true;
    }
    return false;
  }

  absl::Status Merge(const ParameterSpec& weight, std::vector<float>& w) const {
    const int64_t out = weight.shape[0], in = weight.shape[1], r = config.rank;
    std::vector<float> a(static_cast<size_t>(r * in)), b(static_cast<size_t>(out * r));
    TROUPE_RETURN_IF_ERROR(weights({Decoder::AdapterName(weight.name, "lora_A"), {r, in}}, 0, r * in, a.data()));
    TROUPE_RETURN_IF_ERROR(weights({Decoder::AdapterName(weight.name, "lora_B"), {out, r}}, 0, out * r, b.data()));
    MergeLora(a, b, r, static_cast<float>(config.scaling()), absl::MakeSpan(w));
    return absl::OkStatus();
  }
};

absl::StatusOr<DType> ParseDType(const std::string& name) {
  for (DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    if (name == Name(dtype)) return dtype;
  }
  return absl::InvalidArgumentError(absl::StrCat("dtype \"", name, "\": there are float32, bfloat16 and float16"));
}

absl::StatusOr<DType> DTypeOfFile(const TensorEntry& entry) {
  if (entry.dtype == "F32") return DType::kF32;
  if (entry.dtype == "BF16") return DType::kBF16;
  if (entry.dtype == "F16") return DType::kF16;
  return absl::UnimplementedError(absl::StrCat("tensor ", entry.name, " has dtype ", entry.dtype, ": only F32, BF16 and F16 are read"));
}

}  // namespace

void MergeLora(absl::Span<const float> a, absl::Span<const float> b, int64_t rank, float scaling, absl::Span<float> w) {
  const auto r_end = static_cast<size_t>(rank);
  const size_t in = a.size() / r_end, out = b.size() / r_end;
  TROUPE_CHECK_EQ(w.size(), in * out);
  std::vector<float> delta(in);
  for (size_t o = 0; o < out; ++o) {
    std::fill(delta.begin(), delta.end(), 0.0f);
    for (size_t r = 0; r < r_end; ++r) {
      const float factor = b[o * r_end + r];
      const float* row = a.data() + r * in;
      for (size_t i = 0; i < in; ++i) delta[i] += factor * row[i];
    }
    float* target = w.data() + o * in;
    for (size_t i = 0; i < in; ++i) target[i] += scaling * delta[i];
  }
}

absl::Status WriteMergedModel(const MergeOptions& options) {
  std::error_code error;
  if (std::filesystem::equivalent(options.model, options.output_dir, error)) {
    return absl::FailedPreconditionError(absl::StrCat("output_dir ", options.output_dir, " is the model itself; name another folder"));
  }
  TROUPE_RETURN_IF_ERROR(CheckReplaceable(options.output_dir));
  TROUPE_ASSIGN_OR_RETURN(DecoderConfig config, ReadDecoderConfig(options.model));
  TROUPE_ASSIGN_OR_RETURN(const std::shared_ptr<const WeightFolder> base, WeightFolder::Open(options.model));
  std::optional<Adapter> adapter;
  if (!options.adapters.empty()) {
    adapter.emplace();
    TROUPE_ASSIGN_OR_RETURN(adapter->config, ReadLoraConfig(options.adapters));
    TROUPE_ASSIGN_OR_RETURN(adapter->weights, AdapterWeights(options.adapters, config));
  }
  std::optional<DType> dtype;
  if (!options.dtype.empty()) {
    TROUPE_ASSIGN_OR_RETURN(dtype, ParseDType(options.dtype));
  }

  const std::vector<ParameterSpec> weights = DecoderWeights(config);
  std::vector<const TensorEntry*> sources;
  std::vector<SafetensorsWriter::Entry> entries;
  for (const ParameterSpec& weight : weights) {
    TROUPE_ASSIGN_OR_RETURN(const TensorEntry* source, base->Find(weight.name, weight.shape));
    TROUPE_ASSIGN_OR_RETURN(const DType of_file, DTypeOfFile(*source));
    sources.push_back(source);
    entries.push_back({weight.name, dtype.value_or(of_file), weight.shape});
  }
  config.dtype = entries[0].dtype;

  TROUPE_ASSIGN_OR_RETURN(AtomicDirectory target, AtomicDirectory::Create(options.output_dir));
  TROUPE_RETURN_IF_ERROR(WriteFile(target.path() + "/config.json", DecoderConfigToJson(config)));
  TROUPE_RETURN_IF_ERROR(CopyTokenizerFiles(options.model, target.path()));
  TROUPE_ASSIGN_OR_RETURN(const std::unique_ptr<ShardedWriter> writer,
                          ShardedWriter::Create({target.path(), "model", options.max_shard_bytes}, std::move(entries)));
  std::vector<float> values;
  for (size_t i = 0; i < weights.size(); ++i) {
    values.resize(static_cast<size_t>(NumElements(weights[i].shape)));
    TROUPE_RETURN_IF_ERROR(ReadElements(*sources[i], 0, NumElements(weights[i].shape), values.data()));
    if (adapter.has_value() && adapter->Adapts(weights[i].name)) TROUPE_RETURN_IF_ERROR(adapter->Merge(weights[i], values));
    TROUPE_RETURN_IF_ERROR(writer->Write(weights[i].name, values));
  }
  TROUPE_RETURN_IF_ERROR(writer->Finish());
  return target.Commit();
}

}  // namespace troupe::engine
