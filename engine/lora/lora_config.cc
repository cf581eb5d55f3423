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

namespace {

/// Features of PEFT that change what an adapter computes.
constexpr const char* kNotImplemented[] = {
    "use_dora",       "modules_to_save", "rank_pattern",   "alpha_pattern", "layers_to_transform",     "layer_replication",
    "fan_in_fan_out", "megatron_config", "lora_bias",      "use_qalora",    "trainable_token_indices", "target_parameters",
    "arrow_config",   "exclude_modules", "kasa_config",    "use_bdlora",    "alora_invocation_tokens", "monteclora_config",
    "velora_config",
};

absl::Status RefuseWhatWeLack(const Json& json) {
  if (json.value("peft_type", Json()) != "LORA") {
    return absl::UnimplementedError(absl::StrCat("peft_type is ", json.value("peft_type", Json()).dump(), ", only LORA is read"));
  }
  const Json task = json.value("task_type", Json());
  if (!task.is_null() && task != "CAUSAL_LM") return absl::UnimplementedError(absl::StrCat("task_type is ", task.dump(), ", only CAUSAL_LM is read"));
  for (const char* key : kNotImplemented) {
    if (InUse(json, key)) return absl::UnimplementedError(absl::StrCat("uses ", key, ", which is not supported"));
  }
  const Json bias = json.value("bias", Json("none"));
  if (bias != "none") return absl::UnimplementedError(absl::StrCat("bias ", bias.dump(), " is not supported"));
  // Some ways to begin an adapter take something out of the base weights, which would then not be the model's.
  const Json init = json.value("init_lora_weights", Json(true));
  if (!init.is_boolean() && !init.is_null() && init != "gaussian" && init != "orthogonal" && init != "eva") {
    return absl::UnimplementedError(absl::StrCat("init_lora_weights ", init.dump(), " changes the base weights, which is not supported"));
  }
  return absl::OkStatus();
}

absl::StatusOr<LoraConfig> Parse(const Json& json) {
  if (!json.is_object()) return absl::InvalidArgumentError("is not a JSON object");
  TROUPE_RETURN_IF_ERROR(RefuseWhatWeLack(json));
  LoraConfig config;
  for (const char* key : {"r", "lora_alpha"}) {
    if (!json.contains(key) || !json[key].is_number()) return absl::InvalidArgumentError(absl::StrCat(key, " is missing or no number"));
  }
  config.alpha = json["lora_alpha"].get<double>();
  if (!json["r"].is_number_integer() || json["r"] < 1 || json["r"] > 65536) {
    return absl::InvalidArgumentError(absl::StrCat("r is ", json["r"].dump(), "; it must be 1 to 65536"));
  }
  config.rank = json["r"].get<int64_t>();
  const Json dropout = json.value("lora_dropout", Json(0.0));
  if (!dropout.is_number() || dropout < 0.0 || dropout >= 1.0) {
    return absl::InvalidArgumentError(absl::StrCat("lora_dropout is ", dropout.dump(), "; it must be at least 0 and below 1"));
  }
  config.dropout = dropout.get<double>();
  config.use_rslora = InUse(json, "use_rslora");
  const Json base = json.value("base_model_name_or_path", Json());
  if (base.is_string()) config.base_model_name_or_path = base.get<std::string>();
  const Json targets = json.value("target_modules", Json());
  std::vector<std::string> names;
  for (const Json& name : targets.is_array() ? targets : Json::array({targets})) {
    if (!name.is_string()) return absl::InvalidArgumentError(absl::StrCat("target_modules is ", targets.dump(), ", not a list of names"));
    names.push_back(name.get<std::string>());
  }
  TROUPE_ASSIGN_OR_RETURN(config.target_modules, ResolveTargetModules(names));
  return config;
}

}  // namespace

absl::StatusOr<LoraConfig> ReadLoraConfig(const std::string& adapter_dir) {
  const std::string path = adapter_dir + "/adapter_config.json";
  TROUPE_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded()) return absl::InvalidArgumentError(path + ": is not JSON");
  absl::StatusOr<LoraConfig> config = Parse(json);
  if (!config.ok()) return Annotate(config.status(), path);
  return config;
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
