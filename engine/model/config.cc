#include "engine/model/config.h"

#include <nlohmann/json.hpp>

#include "engine/io/atomic_directory.h"
#include "runtime/base/status.h"

namespace troupe::engine {
namespace {

using Json = nlohmann::ordered_json;

absl::Status Unsupported(const std::string& what) { return absl::UnimplementedError(what + " is not supported"); }

/// The value of a key, or the default when the key is absent or null.
template <typename T>
T Get(const Json& json, const char* key, T fallback) {
  const auto found = json.find(key);
  return found == json.end() || found->is_null() ? fallback : found->get<T>();
}

absl::Status ParseRope(const Json& json, DecoderConfig& config) {
  // transformers 5 keeps theta and scaling in one object; before there were two keys.
  const bool new_form = json.contains("rope_parameters") && json["rope_parameters"].is_object();
  const Json rope = new_form ? json["rope_parameters"] : Get<Json>(json, "rope_scaling", Json::object());
  config.rope_theta = Get(json, "rope_theta", config.rope_theta);
  if (new_form) config.rope_theta = Get(rope, "rope_theta", config.rope_theta);
  const std::string type = Get<std::string>(rope, "rope_type", Get<std::string>(rope, "type", "default"));
  if (type == "default") return absl::OkStatus();
  if (type != "llama3") return Unsupported("rope type \"" + type + "\"");
  config.rope_scaling.kind = RopeScaling::Kind::kLlama3;
  config.rope_scaling.factor = rope.at("factor").get<double>();
  config.rope_scaling.low_freq_factor = rope.at("low_freq_factor").get<double>();
  config.rope_scaling.high_freq_factor = rope.at("high_freq_factor").get<double>();
  config.rope_scaling.original_max_position_embeddings = rope.at("original_max_position_embeddings").get<int64_t>();
  return absl::OkStatus();
}

absl::Status ParseTokenIds(const Json& json, DecoderConfig& config) {
  const auto bos = json.find("bos_token_id");
  if (bos != json.end() && bos->is_number_integer()) config.bos_token_id = bos->get<int64_t>();
  const auto eos = json.find("eos_token_id");
  if (eos != json.end() && eos->is_number_integer()) config.eos_token_ids = {eos->get<int64_t>()};
  if (eos != json.end() && eos->is_array()) config.eos_token_ids = eos->get<std::vector<int64_t>>();
  return absl::OkStatus();
}

absl::Status RefuseWhatWeLack(const Json& json) {
  const std::string act = Get<std::string>(json, "hidden_act", "silu");
  if (act != "silu") return Unsupported("hidden_act \"" + act + "\"");
  if (Get(json, "use_sliding_window", false)) return Unsupported("use_sliding_window");
  if (Get<Json>(json, "quantization_config", Json()).is_object()) return Unsupported("quantization_config");
  for (const Json& layer : Get<Json>(json, "layer_types", Json::array())) {
    if (layer != "full_attention") return Unsupported("layer type " + layer.dump());
  }
  if (Get(json, "attention_dropout", 0.0) != 0.0) return Unsupported("attention_dropout " + json["attention_dropout"].dump());
  return absl::OkStatus();
}

absl::Status CheckShape(const DecoderConfig& c) {
  const std::pair<const char*, int64_t> sizes[] = {
      {"vocab_size", c.vocab_size},         {"hidden_size", c.hidden_size},
      {"head_dim", c.head_dim},             {"intermediate_size", c.intermediate_size},
      {"num_hidden_layers", c.num_hidden_layers}, {"num_attention_heads", c.num_attention_heads},
      {"num_key_value_heads", c.num_key_value_heads}};
  for (const auto& [key, value] : sizes) {
    if (value < 1 || value > (int64_t{1} << 28)) return absl::InvalidArgumentError(absl::StrCat(key, " is ", value));
  }
  if (c.num_attention_heads % c.num_key_value_heads != 0) {
    return absl::InvalidArgumentError(absl::StrCat("num_attention_heads ", c.num_attention_heads, " is no multiple of num_key_value_heads ",
                                                   c.num_key_value_heads));
  }
  if (c.head_dim % 2 != 0) return absl::InvalidArgumentError(absl::StrCat("head_dim ", c.head_dim, " is odd"));
  return absl::OkStatus();
}

absl::StatusOr<DecoderConfig> Parse(const Json& json) {
  DecoderConfig config;
  config.model_type = Get<std::string>(json, "model_type", "");
  const bool llama = config.model_type == "llama", qwen2 = config.model_type == "qwen2", qwen3 = config.model_type == "qwen3";
  if (!llama && !qwen2 && !qwen3) return Unsupported("model_type \"" + config.model_type + "\" (there are llama, qwen2 and qwen3)");
  TROUPE_RETURN_IF_ERROR(RefuseWhatWeLack(json));
  config.vocab_size = json.at("vocab_size").get<int64_t>();
  config.hidden_size = json.at("hidden_size").get<int64_t>();
  config.intermediate_size = json.at("intermediate_size").get<int64_t>();
  config.num_hidden_layers = json.at("num_hidden_layers").get<int64_t>();
  config.num_attention_heads = json.at("num_attention_heads").get<int64_t>();
  config.num_key_value_heads = Get(json, "num_key_value_heads", llama ? config.num_attention_heads : int64_t{32});
  if (config.num_attention_heads < 1) return absl::InvalidArgumentError(absl::StrCat("num_attention_heads is ", config.num_attention_heads));
  config.head_dim = Get(json, "head_dim", qwen3 ? int64_t{128} : config.hidden_size / config.num_attention_heads);
  config.rms_norm_eps = Get(json, "rms_norm_eps", 1e-6);
  config.max_position_embeddings = Get(json, "max_position_embeddings", llama ? int64_t{2048} : int64_t{32768});
  config.tie_word_embeddings = Get(json, "tie_word_embeddings", false);
  const bool attention_bias = Get(json, "attention_bias", false);
  config.qkv_bias = qwen2 || attention_bias;
  config.o_bias = !qwen2 && attention_bias;
  config.mlp_bias = llama && Get(json, "mlp_bias", false);
  config.qk_norm = qwen3;
  config.initializer_range = Get(json, "initializer_range", 0.02);
  const std::string dtype = Get<std::string>(json, "dtype", Get<std::string>(json, "torch_dtype", "float32"));
  if (dtype == "bfloat16") {
    config.dtype = DType::kBF16;
  } else if (dtype == "float16") {
    config.dtype = DType::kF16;
  } else if (dtype != "float32") {
    return Unsupported("dtype \"" + dtype + "\"");
  }
  TROUPE_RETURN_IF_ERROR(ParseRope(json, config));
  TROUPE_RETURN_IF_ERROR(ParseTokenIds(json, config));
  TROUPE_RETURN_IF_ERROR(CheckShape(config));
  return config;
}

}  // namespace

absl::StatusOr<DecoderConfig> ReadDecoderConfig(const std::string& model_dir) {
  const std::string path = model_dir + "/config.json";
  TROUPE_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  try {
    absl::StatusOr<DecoderConfig> config = Parse(Json::parse(text));
    if (!config.ok()) return Annotate(config.status(), path);
    return config;
  } catch (const Json::exception& e) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": ", e.what()));
  }
}

std::string DecoderConfigToJson(const DecoderConfig& config) {
  Json json;
  json["architectures"] = {config.model_type == "llama" ? "LlamaForCausalLM" : config.model_type == "qwen2" ? "Qwen2ForCausalLM" : "Qwen3ForCausalLM"};
  json["model_type"] = config.model_type;
  json["vocab_size"] = config.vocab_size;
  json["hidden_size"] = config.hidden_size;
  json["intermediate_size"] = config.intermediate_size;
  json["num_hidden_layers"] = config.num_hidden_layers;
  json["num_attention_heads"] = config.num_attention_heads;
  json["num_key_value_heads"] = config.num_key_value_heads;
  json["head_dim"] = config.head_dim;
  json["hidden_act"] = "silu";
  json["rms_norm_eps"] = config.rms_norm_eps;
  json["max_position_embeddings"] = config.max_position_embeddings;
  json["tie_word_embeddings"] = config.tie_word_embeddings;
  json["initializer_range"] = config.initializer_range;
  json["attention_dropout"] = 0.0;
  if (config.model_type != "qwen2") json["attention_bias"] = config.o_bias;
  if (config.model_type == "llama") json["mlp_bias"] = config.mlp_bias;
  if (config.model_type != "llama") json["use_sliding_window"] = false;
  Json rope = {{"rope_theta", config.rope_theta}, {"rope_type", "default"}};
  if (config.rope_scaling.kind == RopeScaling::Kind::kLlama3) {
    rope["rope_type"] = "llama3";
    rope["factor"] = config.rope_scaling.factor;
    rope["low_freq_factor"] = config.rope_scaling.low_freq_factor;
    rope["high_freq_factor"] = config.rope_scaling.high_freq_factor;
    rope["original_max_position_embeddings"] = config.rope_scaling.original_max_position_embeddings;
  }
  json["rope_parameters"] = rope;
  if (config.bos_token_id >= 0) json["bos_token_id"] = config.bos_token_id;
  if (config.eos_token_ids.size() == 1) json["eos_token_id"] = config.eos_token_ids[0];
  if (config.eos_token_ids.size() > 1) json["eos_token_id"] = config.eos_token_ids;
  json["dtype"] = Name(config.dtype);
  return json.dump(2) + "\n";
}

}  // namespace troupe::engine
