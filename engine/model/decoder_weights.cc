#include "engine/model/decoder_weights.h"

#include "absl/strings/str_cat.h"

namespace troupe::engine {

std::vector<ParameterSpec> DecoderWeights(const DecoderConfig& c) {
  const int64_t d = c.hidden_size, f = c.intermediate_size;
  const int64_t q = c.num_attention_heads * c.head_dim, kv = c.num_key_value_heads * c.head_dim;
  std::vector<ParameterSpec> specs;
  const auto norm = [&](const std::string& name, int64_t size) { specs.push_back({name, {size}, false, false}); };
  const auto linear = [&](const std::string& name, int64_t out, int64_t in, bool bias) {
    specs.push_back({name + ".weight", {out, in}, false, true});
    if (bias) specs.push_back({name + ".bias", {out}, false, false});
  };
  linear("model.embed_tokens", c.vocab_size, d, false);
  norm("model.norm.weight", d);
  if (!c.tie_word_embeddings) linear("lm_head", c.vocab_size, d, false);
  for (int64_t i = 0; i < c.num_hidden_layers; ++i) {
    const std::string layer = absl::StrCat("model.layers.", i, ".");
    norm(layer + "input_layernorm.weight", d);
    norm(layer + "post_attention_layernorm.weight", d);
    if (c.qk_norm) {
      norm(layer + "self_attn.q_norm.weight", c.head_dim);
      norm(layer + "self_attn.k_norm.weight", c.head_dim);
    }
    linear(layer + "self_attn.q_proj", q, d, c.qkv_bias);
    linear(layer + "self_attn.k_proj", kv, d, c.qkv_bias);
    linear(layer + "self_attn.v_proj", kv, d, c.qkv_bias);
    linear(layer + "self_attn.o_proj", d, q, c.o_bias);
    linear(layer + "mlp.gate_proj", f, d, c.mlp_bias);
    linear(layer + "mlp.up_proj", f, d, c.mlp_bias);
    linear(layer + "mlp.down_proj", d, f, c.mlp_bias);
  }
  return specs;
}

}  // namespace troupe::engine
