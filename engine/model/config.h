/// The shape of a decoder, as read from a Hugging Face config.json.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/tensor/dtype.h"

namespace troupe::engine {

/// How rotary frequencies are stretched beyond the trained context.
///
/// Source  Llama 3.1's config.json; transformers `_compute_llama3_parameters`
struct RopeScaling {
  enum class Kind { kNone, kLlama3 };
  Kind kind = Kind::kNone;
  double factor = 1.0;
  double low_freq_factor = 1.0;
  double high_freq_factor = 4.0;
  int64_t original_max_position_embeddings = 8192;
};

struct DecoderConfig {
  std::string model_type;  ///< "llama", "qwen2" or "qwen3"
  int64_t vocab_size = 0;
  int64_t hidden_size = 0;
  int64_t intermediate_size = 0;
  int64_t num_hidden_layers = 0;
  int64_t num_attention_heads = 0;
  int64_t num_key_value_heads = 0;
  int64_t head_dim = 0;
  double rms_norm_eps = 1e-6;
  double rope_theta = 10000.0;
  RopeScaling rope_scaling;
  int64_t max_position_embeddings = 0;
  bool tie_word_embeddings = false;
  bool qkv_bias = false;  ///< Qwen2: biases on q, k and v; Llama's attention_bias: also on o
  bool o_bias = false;
  bool mlp_bias = false;
  bool qk_norm = false;  ///< Qwen3: RMSNorm over head_dim on q and k before the rotation
  double initializer_range = 0.02;
  DType dtype = DType::kF32;  ///< what the files hold (`dtype`, formerly `torch_dtype`)
  int64_t bos_token_id = -1;  ///< -1: none
  std::vector<int64_t> eos_token_ids;
};

/// Reads `DIR/config.json` in the old form (`rope_theta`, `rope_scaling`, `torch_dtype`) and that of transformers 5
/// (`rope_parameters`, `dtype`).
///
/// Errors  NOT_FOUND, INVALID_ARGUMENT (which key, which value), UNIMPLEMENTED: what the file asks for and we do not have,
///         by name (model_type, hidden_act, rope type, sliding window in use, ...)
absl::StatusOr<DecoderConfig> ReadDecoderConfig(const std::string& model_dir);

/// The text of a config.json in both forms, so that transformers of any age and we read it back.
std::string DecoderConfigToJson(const DecoderConfig& config);

}  // namespace troupe::engine
