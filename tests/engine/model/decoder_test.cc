#include "engine/model/decoder.h"

#include <gmock/gmock.h>

#include <cmath>

#include "engine/device/cpu/cpu_device.h"
#include "engine/train/training_model.h"

namespace troupe::engine {
namespace {

DecoderConfig TinyConfig() {
  DecoderConfig config;
  config.model_type = "qwen3";
  config.vocab_size = 50;
  config.hidden_size = 24;
  config.intermediate_size = 40;
  config.num_hidden_layers = 2;
  config.num_attention_heads = 4;
  config.num_key_value_heads = 2;
  config.head_dim = 8;
  config.qk_norm = true;
  config.qkv_bias = true;
  config.initializer_range = 0.3;
  return config;
}

std::vector<Sample> SomeSamples(std::vector<int> lengths) {
  std::vector<Sample> samples;
  int token = 7;
  for (int length : lengths) {
    Sample sample;
    for (int t = 0; t < length; ++t) {
      token = (token * 31 + 11) % 50;
      sample.token_ids.push_back(token);
      sample.loss_mask.push_back(t > 0 && t % 3 != 0 ? 1 : 0);
    }
    samples.push_back(sample);
  }
  return samples;
}

AdapterOptions SomeAdapter() {
  AdapterOptions adapter;
  adapter.rank = 3;
  adapter.scaling = 1.5;
  adapter.target_modules = {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"};
  return adapter;
}

class DecoderTest : public ::testing::Test {
 protected:
  std::unique_ptr<Decoder> Make(DecoderOptions options) {
    auto decoder = std::make_unique<Decoder>(TinyConfig(), std::move(options), comm_, *device_);
    // Norm gains and biases other than 1 and 0, so that their gradients are tested too.
    const WeightReader weights = RandomWeights(TinyConfig(), 3);
    const WeightReader reader = [&](const ParameterSpec& spec, int64_t begin, int64_t count, float* values) {
      const absl::Status status = weights(spec, begin, count, values);
      for (int64_t i = 0; i < count; ++i) {
        if (!spec.decay) values[i] += 0.1f * static_cast<float>((begin + i) % 5);
        if (spec.name.find("lora") != std::string::npos) values[i] = 0.05f * static_cast<float>((begin + i) % 7 - 3);
      }
      return status;
    };
    EXPECT_TRUE(decoder->Load(reader).ok());
    return decoder;
  }

  double Loss(Decoder& decoder, const PackedBatch& batch) {
    Tape tape(*device_, false);
    const TokenScores scores = decoder.Forward(tape, batch, nullptr).value();
    double loss = 0;
    for (float logp : scores.logps) loss -= static_cast<double>(logp);
    return loss / static_cast<double>(scores.logps.size());
  }

  void Backward(Decoder& decoder, const PackedBatch& batch) {
    Tape tape(*device_, true);
    const float scale = -1.0f / static_cast<float>(batch.targets.size());
    auto dlogps = std::make_shared<std::vector<float>>(batch.targets.size(), scale);
    ASSERT_TRUE(decoder.Forward(tape, batch, dlogps).ok());
    ASSERT_TRUE(tape.Backward().ok());
  }

  /// Moves the weights along the gradient's sign pattern of every parameter and compares the slope of the loss.
  void CheckGradients(Decoder& decoder) {
    const PackedBatch batch = Pack(SomeSamples({9, 70, 2}), Targets::kLossMask);
    Backward(decoder, batch);
    for (const auto& block : decoder.blocks()) {
      FlatParameters& flat = block->trainable();
      const std::vector<float> grad = flat.size > 0 ? flat.shard_grad.ToVector() : std::vector<float>();
      for (size_t p = 0; p < flat.parameters.size(); ++p) {
        const ParameterSpec& spec = flat.parameters[p]->spec();
        const int64_t begin = flat.offsets[p], n = NumElements(spec.shape);
        double norm = 0;
        for (int64_t i = 0; i < n; ++i) norm += std::pow(static_cast<double>(grad[static_cast<size_t>(begin + i)]), 2);
        norm = std::sqrt(norm);
        ASSERT_GT(norm, 1e-6) << spec.name;
        const double step = 0.004;
        double losses[2];
        const std::vector<float> saved = flat.shard.ToVector();
        for (int side = 0; side < 2; ++side) {
          for (int64_t i = 0; i < n; ++i) {
            const auto at = static_cast<size_t>(begin + i);
            flat.shard.f32()[at] = saved[at] + static_cast<float>((side == 0 ? step : -step) * static_cast<double>(grad[at]) / norm);
          }
          block->WeightsChanged();
          losses[side] = Loss(decoder, batch);
        }
        std::copy(saved.begin(), saved.end(), flat.shard.f32());
        block->WeightsChanged();
        EXPECT_NEAR((losses[0] - losses[1]) / (2 * step) / norm, 1.0, 0.02) << spec.name << " |grad| " << norm;
      }
    }
  }

  std::unique_ptr<Device> device_ = MakeCpuDevice(2);
  SingleCommunicator comm_;
};

TEST_F(DecoderTest, BackwardMatchesFiniteDifferencesForAllWeights) {
  const auto decoder = Make({.train_base = true});
  CheckGradients(*decoder);
}

TEST_F(DecoderTest, BackwardMatchesFiniteDifferencesForAdapters) {
  DecoderOptions options;
  options.adapter = SomeAdapter();
  const auto decoder = Make(options);
  CheckGradients(*decoder);
}

TEST_F(DecoderTest, RecomputedLayersGiveTheSameBits) {
  const PackedBatch batch = Pack(SomeSamples({30, 5}), Targets::kLossMask);
  const auto saved = Make({.train_base = true});
  const auto recomputed = Make({.train_base = true, .gradient_checkpointing = true});
  Backward(*saved, batch);
  Backward(*recomputed, batch);
  for (size_t b = 0; b < saved->blocks().size(); ++b) {
    EXPECT_EQ(saved->blocks()[b]->trainable().shard_grad.ToVector(), recomputed->blocks()[b]->trainable().shard_grad.ToVector());
  }
}

TEST_F(DecoderTest, ASamplesBitsDoNotDependOnItsNeighboursOrTheThreads) {
  const auto decoder = Make({.train_base = true});
  const std::vector<Sample> samples = SomeSamples({3, 67, 130, 12, 1, 40});
  Tape tape(*device_, false);
  const std::vector<float> together = decoder->Forward(tape, Pack(samples, Targets::kAll), nullptr).value().logps;
  std::vector<float> alone;
  const auto one_thread = MakeCpuDevice(1);
  Decoder other(TinyConfig(), {.train_base = true}, comm_, *one_thread);
  for (size_t b = 0; b < other.blocks().size(); ++b) {
    const std::vector<float> weights = decoder->blocks()[b]->trainable().shard.ToVector();
    std::copy(weights.begin(), weights.end(), other.blocks()[b]->trainable().shard.f32());
  }
  for (const Sample& sample : samples) {
    Tape other_tape(*one_thread, false);
    const TokenScores scores = other.Forward(other_tape, Pack({&sample, 1}, Targets::kAll), nullptr).value();
    alone.insert(alone.end(), scores.logps.begin(), scores.logps.end());
  }
  EXPECT_EQ(together, alone);
}

TEST_F(DecoderTest, AnEmptyBatchGivesZeroGradients) {
  const auto decoder = Make({.train_base = true});
  Backward(*decoder, Pack({}, Targets::kLossMask));
  for (const auto& block : decoder->blocks()) EXPECT_THAT(block->trainable().shard_grad.ToVector(), ::testing::Each(0.0f));
}

}  // namespace
}  // namespace troupe::engine
