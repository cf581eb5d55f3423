#include "engine/model/decoder.h"

#include <algorithm>
#include <bit>

#include "engine/ops/elementwise.h"
#include "engine/ops/rms_norm.h"
#include "runtime/base/status.h"

namespace troupe::engine {

std::string Decoder::AdapterName(const std::string& weight_name, const std::string& which) {
  const std::string module = weight_name.substr(0, weight_name.size() - std::string(".weight").size());
  return "base_model.model." + module + "." + which + ".weight";
}

Decoder::Decoder(DecoderConfig config, DecoderOptions options, Communicator& fsdp, Device& device)
    : config_(std::move(config)), options_(std::move(options)), fsdp_(&fsdp), device_(&device) {
  const bool train = options_.train_base;
  std::vector<ParameterSpec> root = {
      {"model.embed_tokens.weight", {config_.vocab_size, config_.hidden_size}, train, true},
      {"model.norm.weight", {config_.hidden_size}, train, false},
  };
  if (!config_.tie_word_embeddings) root.push_back({"lm_head.weight", {config_.vocab_size, config_.hidden_size}, train, true});
  blocks_.push_back(std::make_unique<ParameterBlock>("root", std::move(root), options_.storage, fsdp, device));
  embedding_ = &blocks_[0]->Find("model.embed_tokens.weight");
  final_norm_ = &blocks_[0]->Find("model.norm.weight");
  head_ = config_.tie_word_embeddings ? embedding_ : &blocks_[0]->Find("lm_head.weight");
  for (int64_t i = 0; i < config_.num_hidden_layers; ++i) AddLayer(i);
}

void Decoder::AddLayer(int64_t index) {
  const bool train = options_.train_base;
  const std::string prefix = absl::StrCat("model.layers.", index, ".");
  const int64_t d = config_.hidden_size, hd = config_.head_dim, f = config_.intermediate_size;
  const int64_t q = config_.num_attention_heads * hd, kv = config_.num_key_value_heads * hd;
  struct Projection {
    const char* name;
    int64_t out, in;
    bool bias;
    LinearLayer Layer::*layer;
  };
  const std::vector<Projection> projections = {
      {"self_attn.q_proj", q, d, config_.qkv_bias, &Layer::q},       {"self_attn.k_proj", kv, d, config_.qkv_bias, &Layer::k},
      {"self_attn.v_proj", kv, d, config_.qkv_bias, &Layer::v},      {"self_attn.o_proj", d, q, config_.o_bias, &Layer::o},
      {"mlp.gate_proj", f, d, config_.mlp_bias, &Layer::gate},       {"mlp.up_proj", f, d, config_.mlp_bias, &Layer::up},
      {"mlp.down_proj", d, f, config_.mlp_bias, &Layer::down},
  };
  const auto adapted = [&](const Projection& projection) {
    if (!options_.adapter.has_value()) return false;
    const std::string name = projection.name;
    const std::vector<std::string>& targets = options_.adapter->target_modules;
    return std::find(targets.begin(), targets.end(), name.substr(name.find('.') + 1)) != targets.end();
  };

  std::vector<ParameterSpec> specs = {{prefix + "input_layernorm.weight", {d}, train, false},
                                      {prefix + "post_attention_layernorm.weight", {d}, train, false}};
  if (config_.qk_norm) {
    specs.push_back({prefix + "self_attn.q_norm.weight", {hd}, train, false});
    specs.push_back({prefix + "self_attn.k_norm.weight", {hd}, train, false});
  }
  for (const Projection& p : projections) {
    const std::string weight = prefix + p.name + ".weight";
    specs.push_back({weight, {p.out, p.in}, train, true});
    if (p.bias) specs.push_back({prefix + p.name + ".bias", {p.out}, train, false});
    if (adapted(p)) {
      specs.push_back({AdapterName(weight, "lora_A"), {options_.adapter->rank, p.in}, true, true});
      specs.push_back({AdapterName(weight, "lora_B"), {p.out, options_.adapter->rank}, true, true});
    }
  }
  blocks_.push_back(std::make_unique<ParameterBlock>(absl::StrCat("layer ", index), std::move(specs), options_.storage, *fsdp_, *device_));

  ParameterBlock& block = *blocks_.back();
  Layer layer{};
  layer.block = &block;
  layer.input_norm = &block.Find(prefix + "input_layernorm.weight");
  layer.post_norm = &block.Find(prefix + "post_attention_layernorm.weight");
  if (config_.qk_norm) {
    layer.q_norm = &block.Find(prefix + "self_attn.q_norm.weight");
    layer.k_norm = &block.Find(prefix + "self_attn.k_norm.weight");
  }
  uint64_t stream = static_cast<uint64_t>(index) * projections.size();
  for (const Projection& p : projections) {
    const std::string weight = prefix + p.name + ".weight";
    LinearLayer& linear = layer.*p.layer;
    linear.weight = &block.Find(weight);
    if (p.bias) linear.bias = &block.Find(prefix + p.name + ".bias");
    linear.lora_stream = stream++;
    if (adapted(p)) {
      linear.lora_a = &block.Find(AdapterName(weight, "lora_A"));
      linear.lora_b = &block.Find(AdapterName(weight, "lora_B"));
      linear.lora_scaling = static_cast<float>(options_.adapter->scaling);
      linear.lora_dropout = static_cast<float>(options_.adapter->dropout);
    }
  }
  layers_.push_back(layer);
}

absl::Status Decoder::Load(const WeightReader& reader, std::optional<bool> trainable) {
  for (const std::unique_ptr<ParameterBlock>& block : blocks_) {
    for (FlatParameters* flat : {&block->frozen(), &block->trainable()}) {
      if (trainable.has_value() && *trainable != flat->trainable) continue;
      const int64_t shard_begin = flat->shard_size * fsdp_->rank(), shard_end = shard_begin + flat->shard_size;
      for (size_t i = 0; i < flat->parameters.size(); ++i) {
        const ParameterSpec& spec = flat->parameters[i]->spec();
        const int64_t begin = std::max(shard_begin, flat->offsets[i]);
        const int64_t end = std::min(shard_end, flat->offsets[i] + NumElements(spec.shape));
        if (begin >= end) continue;
        if (flat->shard.dtype() == DType::kF32) {
          TROUPE_RETURN_IF_ERROR(reader(spec, begin - flat->offsets[i], end - begin, flat->shard.f32() + (begin - shard_begin)));
          continue;
        }
        std::vector<float> values(static_cast<size_t>(end - begin));
        TROUPE_RETURN_IF_ERROR(reader(spec, begin - flat->offsets[i], end - begin, values.data()));
        device_->ToBf16(values, {flat->shard.bf16() + (begin - shard_begin), values.size()});
      }
    }
    block->WeightsChanged();
  }
  return absl::OkStatus();
}

absl::Status Decoder::Visit(bool trainable_only, const std::function<absl::Status(const ParameterSpec&, const Tensor&)>& visit) {
  for (const std::unique_ptr<ParameterBlock>& block : blocks_) {
    for (FlatParameters* flat : {&block->frozen(), &block->trainable()}) {
      if (flat->size == 0 || (trainable_only && !flat->trainable)) continue;
      // The master weights, not the rounded ones that products use.
      Tensor full = Tensor::Empty({flat->shard_size * fsdp_->size()}, flat->shard.dtype());
      TROUPE_RETURN_IF_ERROR(fsdp_->AllGather({flat->shard.bytes(), flat->shard.num_bytes()}, {full.bytes(), full.num_bytes()}));
      if (full.dtype() == DType::kBF16) {
        const Tensor wide = Tensor::Empty(full.shape());
        device_->FromBf16({full.bf16(), static_cast<size_t>(full.size())}, {wide.f32(), static_cast<size_t>(full.size())});
        full = wide;
      }
      for (size_t i = 0; i < flat->parameters.size(); ++i) {
        const ParameterSpec& spec = flat->parameters[i]->spec();
        TROUPE_RETURN_IF_ERROR(visit(spec, full.View(flat->offsets[i], spec.shape)));
      }
    }
  }
  return absl::OkStatus();
}

void Decoder::GrowRopeTable(const PackedRows& rows) {
  int64_t longest = 1;
  for (int32_t position : rows.positions) longest = std::max<int64_t>(longest, position + 1);
  if (rope_ != nullptr && rope_->cos.rows() >= longest) return;
  rope_ = std::make_shared<RopeTable>(config_, static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(longest))));
}

Variable Decoder::LayerForward(Tape& tape, const Layer& layer, const Variable& x, const PackedBatch& batch) const {
  const AttentionShape shape{config_.num_attention_heads, config_.num_key_value_heads, config_.head_dim};
  const double eps = config_.rms_norm_eps;

  const Variable a = RmsNorm(tape, x, *layer.input_norm, eps);
  Variable q = Linear(tape, a, layer.q, batch.dropout);
  Variable k = Linear(tape, a, layer.k, batch.dropout);
  const Variable v = Linear(tape, a, layer.v, batch.dropout);
  if (config_.qk_norm) {
    q = RmsNorm(tape, q, *layer.q_norm, eps);
    k = RmsNorm(tape, k, *layer.k_norm, eps);
  }
  q = Rope(tape, q, batch.rows, rope_);
  k = Rope(tape, k, batch.rows, rope_);
  const Variable h = Add(tape, x, Linear(tape, Attention(tape, q, k, v, batch.rows, shape), layer.o, batch.dropout));

  const Variable m = RmsNorm(tape, h, *layer.post_norm, eps);
  const Variable gated = SwiGlu(tape, Linear(tape, m, layer.gate, batch.dropout), Linear(tape, m, layer.up, batch.dropout));
  return Add(tape, h, Linear(tape, gated, layer.down, batch.dropout));
}

absl::StatusOr<Variable> Decoder::RunLayer(Tape& tape, const Layer& layer, const Variable& x, const PackedBatch& batch) {
  ParameterBlock& block = *layer.block;
  const auto finish_backward = [&block] {
    const absl::Status reduced = block.ReduceGrad();
    block.Release();
    return reduced;
  };
  TROUPE_RETURN_IF_ERROR(block.Gather(/*with_grad=*/false));
  if (!tape.recording() || !options_.gradient_checkpointing) {
    tape.Record(finish_backward);
    Variable y = LayerForward(tape, layer, x, batch);
    block.Release();
    tape.Record([&block] { return block.Gather(/*with_grad=*/true); });
    return y;
  }
  // Saves x alone, and computes the layer once more when its gradients are wanted.
  Tape forward(*device_, /*recording=*/false);
  const Tensor value = LayerForward(forward, layer, x, batch).value();
  block.Release();
  Variable y(value, true);
  tape.Record([this, &layer, &block, x, y, batch, finish_backward] {
    TROUPE_RETURN_IF_ERROR(block.Gather(/*with_grad=*/true));
    Tape again(*device_, /*recording=*/true);
    const Variable input(x.value(), x.requires_grad());
    const Variable output = LayerForward(again, layer, input, batch);
    if (y.grad().defined()) output.AccumulateGrad(*device_, y.grad());
    TROUPE_RETURN_IF_ERROR(again.Backward());
    if (x.requires_grad() && input.grad().defined()) x.AccumulateGrad(*device_, input.grad());
    return finish_backward();
  });
  return y;
}

absl::StatusOr<TokenScores> Decoder::Forward(Tape& tape, const PackedBatch& batch, std::shared_ptr<std::vector<float>> dlogps) {
  GrowRopeTable(*batch.rows);
  ParameterBlock& root = *blocks_[0];
  TROUPE_RETURN_IF_ERROR(root.Gather(/*with_grad=*/tape.recording()));
  tape.Record([&root] {
    const absl::Status reduced = root.ReduceGrad();
    root.Release();
    return reduced;
  });
  Variable x = Embedding(tape, *embedding_, batch.token_ids);
  for (const Layer& layer : layers_) {
    absl::StatusOr<Variable> y = RunLayer(tape, layer, x, batch);
    if (!y.ok()) return y.status();
    x = *std::move(y);
  }
  const Variable scored = RmsNorm(tape, SelectRows(tape, x, batch.target_rows), *final_norm_, config_.rms_norm_eps);
  TokenScores scores = TokenLogps(tape, scored, *head_, batch.targets, std::move(dlogps));
  if (!tape.recording()) root.Release();
  return scores;
}

}  // namespace troupe::engine
