#include "engine/lora/lora_config.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "absl/strings/str_join.h"
#include "engine/io/atomic_directory.h"
#include "runtime/base/status.h"

namespace troupe::engine {
namespace {

using Json = nlohmann::ordered_json;

const std::vector<std::string>& AllLinear() {
  static const auto* names =
      new std::vector<std::string>{"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"};
  return *names;
}

/// Whether a key asks for something: absent, null, false, 0 and empty do not.
bool InUse(const Json& json, const char* key) {
  const auto found = json.find(key);
  if (found == json.end() || found->is_null()) return false;
  if (found->is_boolean()) return found->get<bool>();
  if (found->is_object() || found->is_array()) return !found->empty();
  return true;
}

}  // namespace

double LoraConfig::scaling() const {
  const auto r = static_cast<double>(rank);
  return use_rslora ? alpha / std::sqrt(r) : alpha / r;
}

absl::StatusOr<std::vector<std::string>> ResolveTargetModules(const std::vector<std::string>& names) {
  std::vector<std::string> resolved;
  for (const std::string& name : AllLinear()) {
    const bool wanted = std::find(names.begin(), names.end(), name) != names.end();
    if (wanted || std::find(names.begin(), names.end(), "all-linear") != names.end()) resolved.push_back(name);
  }
  for (const std::string& name : names) {
    if (name == "all-linear" || std::find(AllLinear().begin(), AllLinear().end(), name) != AllLinear().end()) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("target_modules has \"", name, "\"; there are ", absl::StrJoin(AllLinear(), ", "), " and all-linear"));
  }
  if (resolved.empty()) return absl::InvalidArgumentError("target_modules is empty");
  return resolved;
}

absl::StatusOr<LoraConfig> ReadLoraConfig(const std::string& adapter_dir) {
  const std::string path = adapter_dir + "/adapter_config.json";
  TROUPE_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  try {
    const Json json = Json::parse(text);
    if (json.value("peft_type", "") != "LORA") {
      return absl::UnimplementedError(absl::StrCat(path, ": peft_type is ", json.contains("peft_type") ? json["peft_type"].dump() : "missing", ", only LORA is read"));
    }
    for (const char* key : {"use_dora", "modules_to_save", "rank_pattern", "alpha_pattern", "layers_to_transform", "layer_replication",
                            "fan_in_fan_out", "megatron_config", "lora_bias", "trainable_token_indices", "target_parameters",
                            "exclude_modules"}) {
      if (InUse(json, key)) return absl::UnimplementedError(absl::StrCat(path, ": uses ", key, ", which is not supported"));
    }
    if (json.value("bias", "none") != "none") return absl::UnimplementedError(absl::StrCat(path, ": bias ", json["bias"].dump(), " is not supported"));
    LoraConfig config;
    config.rank = json.at("r").get<int64_t>();
    config.alpha = json.at("lora_alpha").get<double>();
    config.dropout = json.value("lora_dropout", 0.0);
    config.use_rslora = json.value("use_rslora", false);
    if (json.contains("base_model_name_or_path") && json["base_model_name_or_path"].is_string()) {
      config.base_model_name_or_path = json["base_model_name_or_path"].get<std::string>();
    }
    if (config.rank < 1 || config.rank > 65536) return absl::InvalidArgumentError(absl::StrCat(path, ": r is ", config.rank));
    if (config.dropout < 0 || config.dropout >= 1) return absl::InvalidArgumentError(absl::StrCat(path, ": lora_dropout is ", config.dropout));
    const Json& targets = json.at("target_modules");
    const std::vector<std::string> names =
        targets.is_string() ? std::vector<std::string>{targets.get<std::string>()} : targets.get<std::vector<std::string>>();
    absl::StatusOr<std::vector<std::string>> resolved = ResolveTargetModules(names);
    if (!resolved.ok()) return Annotate(resolved.status(), path);
    config.target_modules = *std::move(resolved);
    return config;
  } catch (const Json::exception& e) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": ", e.what()));
  }
}

std::string LoraConfigToJson(const LoraConfig& config) {
  Json json;
  json["peft_type"] = "LORA";
  json["task_type"] = "CAUSAL_LM";
  json["base_model_name_or_path"] = config.base_model_name_or_path;
  json["inference_mode"] = true;
  json["r"] = config.rank;
  if (config.alpha == std::floor(config.alpha)) {
    json["lora_alpha"] = static_cast<int64_t>(config.alpha);
  } else {
    json["lora_alpha"] = config.alpha;
  }
  json["lora_dropout"] = config.dropout;
  json["use_rslora"] = config.use_rslora;
  json["use_dora"] = false;
  json["target_modules"] = config.target_modules;
  json["modules_to_save"] = nullptr;
  json["fan_in_fan_out"] = false;
  json["bias"] = "none";
  json["init_lora_weights"] = true;
  json["revision"] = nullptr;
  return json.dump(2) + "\n";
}

}  // namespace troupe::engine
