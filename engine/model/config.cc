#include "engine/model/config.h"

#include <nlohmann/json.hpp>

#include "engine/io/atomic_directory.h"
#include "runtime/base/status.h"

namespace troupe::engine {
namespace {

using Json = nlohmann::ordered_json;

absl::Status Unsupported(const std::string& what) { return absl::UnimplementedError(what + " is not supported"); }

bool Holds(const Json& json, const int64_t*) { return json.is_number_integer(); }
bool Holds(const Json& json, const double*) { return json.is_number(); }
bool Holds(const Json& json, const bool*) { return json.is_boolean(); }
bool Holds(const Json& json, const std::string*) { return json.is_string(); }
const char* Expected(const int64_t*) { return "an integer"; }
const char* Expected(const double*) { return "a number"; }
const char* Expected(const bool*) { return "true or false"; }
const char* Expected(const std::string*) { return "a string"; }

/// Sets `*value` unless the key is absent or null.
///
/// Errors  INVALID_ARGUMENT naming key and value
template <typename T>
absl::Status Read(const Json& json, const char* key, T* value) {
  const auto found = json.find(key);
  if (found == json.end() || found->is_null()) return absl::OkStatus();
  if (!Holds(*found, value)) return absl::InvalidArgumentError(absl::StrCat(key, " is ", found->dump(), ", not ", Expected(value)));
  *value = found->template get<T>();
  return absl::OkStatus();
}

/// The same for a key that must be there.
template <typename T>
absl::Status Require(const Json& json, const char* key, T* value) {
  const auto found = json.find(key);
  if (found == json.end() || found->is_null()) return absl::InvalidArgumentError(absl::StrCat(key, " is missing"));
  return Read(json, key, value);
}

/// An object, or nothing.
absl::StatusOr<Json> Object(const Json& json, const char* key) {
  const auto found = json.find(key);
  if (found == json.end() || found->is_null()) return Json::object();
  if (!found->is_object()) return absl::InvalidArgumentError(absl::StrCat(key, " is ", found->dump(), ", not an object"));
  return *found;
}

absl::Status ParseRope(const Json& json, DecoderConfig& config) {
  // transformers 5 keeps theta and scaling in one object; before there were two keys. Where both are there, it takes rope_scaling.
  TROUPE_ASSIGN_OR_RETURN(const Json parameters, Object(json, "rope_parameters"));
  TROUPE_ASSIGN_OR_RETURN(const Json scaling, Object(json, "rope_scaling"));
  const Json& rope = scaling.empty() ? parameters : scaling;
  TROUPE_RETURN_IF_ERROR(Read(json, "rope_theta", &config.rope_theta));
  TROUPE_RETURN_IF_ERROR(Read(rope, "rope_theta", &config.rope_theta));
  if (!(config.rope_theta > 0)) return absl::InvalidArgumentError(absl::StrCat("rope_theta is ", config.rope_theta));
  double rotary = 1;
  TROUPE_RETURN_IF_ERROR(Read(json, "partial_rotary_factor", &rotary));
  TROUPE_RETURN_IF_ERROR(Read(rope, "partial_rotary_factor", &rotary));
  if (rotary != 1) return Unsupported(absl::StrCat("partial_rotary_factor ", rotary));
  for (const auto& [key, value] : rope.items()) {
    if (value.is_object()) return Unsupported("rope of its own for " + key);
  }

  std::string type = "default";
  TROUPE_RETURN_IF_ERROR(Read(rope, "type", &type));
  TROUPE_RETURN_IF_ERROR(Read(rope, "rope_type", &type));
  if (type == "default") return absl::OkStatus();
  if (type != "llama3") return Unsupported("rope type \"" + type + "\"");
  RopeScaling& r = config.rope_scaling;
  r.kind = RopeScaling::Kind::kLlama3;
  r.original_max_position_embeddings = config.max_position_embeddings;
  TROUPE_RETURN_IF_ERROR(Require(rope, "factor", &r.factor));
  TROUPE_RETURN_IF_ERROR(Require(rope, "low_freq_factor", &r.low_freq_factor));
  TROUPE_RETURN_IF_ERROR(Require(rope, "high_freq_factor", &r.high_freq_factor));
  TROUPE_RETURN_IF_ERROR(Read(rope, "original_max_position_embeddings", &r.original_max_position_embeddings));
  if (!(r.factor >= 1) || !(r.low_freq_factor > 0) || !(r.high_freq_factor > r.low_freq_factor) || r.original_max_position_embeddings < 1) {
    return absl::InvalidArgumentError(absl::StrCat("rope type llama3: factor ", r.factor, ", low_freq_factor ", r.low_freq_factor,
                                                   ", high_freq_factor ", r.high_freq_factor, ", original_max_position_embeddings ",
                                                   r.original_max_position_embeddings, " do not fit together"));
  }
  return absl::OkStatus();
}

absl::Status ParseTokenIds(const Json& json, DecoderConfig& config) {
  TROUPE_RETURN_IF_ERROR(Read(json, "bos_token_id", &config.bos_token_id));
  const auto eos = json.find("eos_token_id");
  if (eos == json.end() || eos->is_null()) return absl::OkStatus();
  for (const Json& id : eos->is_array() ? *eos : Json::array({*eos})) {
    if (!id.is_number_integer()) {
      return absl::InvalidArgumentError(absl::StrCat("eos_token_id is ", eos->dump(), ", not an integer or a list of them"));
    }
    config.eos_token_ids.push_back(id.get<int64_t>());
  }
  return absl::OkStatus();
}

/// A window is in use for layers from max_window_layers on when use_sliding_window is true, unless layer_types says otherwise.
absl::Status RefuseSlidingWindow(const Json& json, int64_t num_layers) {
  const auto types = json.find("layer_types");
  if (types != json.end() && types->is_array()) {
    for (const Json& type : *types) {
      if (type != "full_attention") return Unsupported("layer type " + type.dump());
    }
    return absl::OkStatus();
  }
  bool used = false;
  int64_t window = 4096, first_layer = 28;
  TROUPE_RETURN_IF_ERROR(Read(json, "use_sliding_window", &used));
  TROUPE_RETURN_IF_ERROR(Read(json, "sliding_window", &window));
  TROUPE_RETURN_IF_ERROR(Read(json, "max_window_layers", &first_layer));
  const auto found = json.find("sliding_window");
  const bool none = found != json.end() && found->is_null();
  if (used && !none && num_layers > first_layer) return Unsupported(absl::StrCat("use_sliding_window with sliding_window ", window));
  return absl::OkStatus();
}

absl::Status RefuseWhatWeLack(const Json& json, const DecoderConfig& config) {
  std::string act = "silu";
  TROUPE_RETURN_IF_ERROR(Read(json, "hidden_act", &act));
  if (act != "silu") return Unsupported("hidden_act \"" + act + "\"");
  const auto quantization = json.find("quantization_config");
  if (quantization != json.end() && !quantization->is_null()) return Unsupported("quantization_config");
  double dropout = 0;
  TROUPE_RETURN_IF_ERROR(Read(json, "attention_dropout", &dropout));
  if (dropout != 0) return Unsupported(absl::StrCat("attention_dropout ", dropout));
  return config.model_type == "llama" ? absl::OkStatus() : RefuseSlidingWindow(json, config.num_hidden_layers);
}

absl::Status CheckShape(const DecoderConfig& c) {
  struct Size {
    const char* key;
    int64_t value, most;
  };
  for (const Size& size : {Size{"vocab_size", c.vocab_size, int64_t{1} << 24}, Size{"hidden_size", c.hidden_size, int64_t{1} << 20},
                           Size{"intermediate_size", c.intermediate_size, int64_t{1} << 22}, Size{"head_dim", c.head_dim, int64_t{1} << 14},
                           Size{"num_hidden_layers", c.num_hidden_layers, 4096}, Size{"num_attention_heads", c.num_attention_heads, 4096},
                           Size{"num_key_value_heads", c.num_key_value_heads, 4096},
                           Size{"max_position_embeddings", c.max_position_embeddings, int64_t{1} << 31}}) {
    if (size.value < 1 || size.value > size.most) {
      return absl::InvalidArgumentError(absl::StrCat(size.key, " is ", size.value, "; it must be 1 to ", size.most));
    }
  }
  if (c.num_attention_heads % c.num_key_value_heads != 0) {
    return absl::InvalidArgumentError(absl::StrCat("num_attention_heads ", c.num_attention_heads, " is no multiple of num_key_value_heads ",
                                                   c.num_key_value_heads));
  }
  if (c.head_dim % 2 != 0) return absl::InvalidArgumentError(absl::StrCat("head_dim ", c.head_dim, " is odd"));
  if (!(c.rms_norm_eps > 0)) return absl::InvalidArgumentError(absl::StrCat("rms_norm_eps is ", c.rms_norm_eps));
  return absl::OkStatus();
}

absl::Status ParseDType(const Json& json, DecoderConfig& config) {
  std::string dtype = "float32";
  TROUPE_RETURN_IF_ERROR(Read(json, "torch_dtype", &dtype));
  TROUPE_RETURN_IF_ERROR(Read(json, "dtype", &dtype));
  for (DType known : {DType::kF32, DType::kBF16, DType::kF16}) {
    if (dtype != Name(known)) continue;
    config.dtype = known;
    return absl::OkStatus();
  }
  return Unsupported("dtype \"" + dtype + "\"");
}

/// Defaults are those of transformers' LlamaConfig, Qwen2Config and Qwen3Config.
absl::StatusOr<DecoderConfig> Parse(const Json& json) {
  if (!json.is_object()) return absl::InvalidArgumentError("is not a JSON object");
  DecoderConfig c;
  TROUPE_RETURN_IF_ERROR(Read(json, "model_type", &c.model_type));
  const bool llama = c.model_type == "llama", qwen2 = c.model_type == "qwen2", qwen3 = c.model_type == "qwen3";
  if (!llama && !qwen2 && !qwen3) return Unsupported("model_type \"" + c.model_type + "\" (there are llama, qwen2 and qwen3)");
  TROUPE_RETURN_IF_ERROR(Require(json, "vocab_size", &c.vocab_size));
  TROUPE_RETURN_IF_ERROR(Require(json, "hidden_size", &c.hidden_size));
  TROUPE_RETURN_IF_ERROR(Require(json, "intermediate_size", &c.intermediate_size));
  TROUPE_RETURN_IF_ERROR(Require(json, "num_hidden_layers", &c.num_hidden_layers));
  TROUPE_RETURN_IF_ERROR(Require(json, "num_attention_heads", &c.num_attention_heads));
  TROUPE_RETURN_IF_ERROR(RefuseWhatWeLack(json, c));
  if (c.num_attention_heads < 1) return absl::InvalidArgumentError(absl::StrCat("num_attention_heads is ", c.num_attention_heads));
  // A Qwen config without the key means 32; null always means as many as there are heads.
  c.num_key_value_heads = llama || json.contains("num_key_value_heads") ? c.num_attention_heads : 32;
  TROUPE_RETURN_IF_ERROR(Read(json, "num_key_value_heads", &c.num_key_value_heads));
  c.head_dim = qwen3 ? 128 : c.hidden_size / c.num_attention_heads;
  TROUPE_RETURN_IF_ERROR(Read(json, "head_dim", &c.head_dim));
  TROUPE_RETURN_IF_ERROR(Read(json, "rms_norm_eps", &c.rms_norm_eps));
  c.max_position_embeddings = llama ? 2048 : 32768;
  TROUPE_RETURN_IF_ERROR(Read(json, "max_position_embeddings", &c.max_position_embeddings));
  TROUPE_RETURN_IF_ERROR(Read(json, "tie_word_embeddings", &c.tie_word_embeddings));
  bool attention_bias = false;
  TROUPE_RETURN_IF_ERROR(Read(json, "attention_bias", &attention_bias));
  c.qkv_bias = qwen2 || attention_bias;
  c.o_bias = !qwen2 && attention_bias;
  if (llama) TROUPE_RETURN_IF_ERROR(Read(json, "mlp_bias", &c.mlp_bias));
  c.qk_norm = qwen3;
  TROUPE_RETURN_IF_ERROR(Read(json, "initializer_range", &c.initializer_range));
  TROUPE_RETURN_IF_ERROR(ParseDType(json, c));
  TROUPE_RETURN_IF_ERROR(ParseRope(json, c));
  TROUPE_RETURN_IF_ERROR(ParseTokenIds(json, c));
  TROUPE_RETURN_IF_ERROR(CheckShape(c));
  return c;
}

}  // namespace

absl::StatusOr<DecoderConfig> ReadDecoderConfig(const std::string& model_dir) {
  const std::string path = model_dir + "/config.json";
  TROUPE_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded()) return absl::InvalidArgumentError(path + ": is not JSON");
  absl::StatusOr<DecoderConfig> config = Parse(json);
  if (!config.ok()) return Annotate(config.status(), path);
  return config;
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
  if (config.model_type != "qwen2" || config.head_dim * config.num_attention_heads != config.hidden_size) {
    json["head_dim"] = config.head_dim;
  }
  json["hidden_act"] = "silu";
  json["rms_norm_eps"] = config.rms_norm_eps;
  json["max_position_embeddings"] = config.max_position_embeddings;
  json["tie_word_embeddings"] = config.tie_word_embeddings;
  json["initializer_range"] = config.initializer_range;
  json["attention_dropout"] = 0.0;
  if (config.model_type != "qwen2") json["attention_bias"] = config.o_bias;
  if (config.model_type == "llama") json["mlp_bias"] = config.mlp_bias;
  if (config.model_type != "llama") json["use_sliding_window"] = false;
  Json rope = {{"rope_type", "default"}};
  if (config.rope_scaling.kind == RopeScaling::Kind::kLlama3) {
    rope["rope_type"] = "llama3";
    rope["factor"] = config.rope_scaling.factor;
    rope["low_freq_factor"] = config.rope_scaling.low_freq_factor;
    rope["high_freq_factor"] = config.rope_scaling.high_freq_factor;
    rope["original_max_position_embeddings"] = config.rope_scaling.original_max_position_embeddings;
  }
  // Programs older than transformers 5 know the two old keys only.
  json["rope_theta"] = config.rope_theta;
  json["rope_scaling"] = config.rope_scaling.kind == RopeScaling::Kind::kNone ? Json() : rope;
  rope["rope_theta"] = config.rope_theta;
  json["rope_parameters"] = rope;
  if (config.bos_token_id >= 0) json["bos_token_id"] = config.bos_token_id;
  if (config.eos_token_ids.size() == 1) json["eos_token_id"] = config.eos_token_ids[0];
  if (config.eos_token_ids.size() > 1) json["eos_token_id"] = config.eos_token_ids;
  json["dtype"] = Name(config.dtype);
  json["torch_dtype"] = Name(config.dtype);
  return json.dump(2) + "\n";
}

}  // namespace troupe::engine
