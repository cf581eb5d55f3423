// Against PyTorch, transformers and PEFT: tests/golden/README.md says what the files hold.
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>

#include "engine/device/cpu/cpu_device.h"
#include "engine/io/atomic_directory.h"
#include "engine/io/model_files.h"
#include "engine/optim/lr_schedule.h"
#include "engine/train/training_model.h"

namespace troupe::engine {
namespace {

const std::string kGolden = TROUPE_SOURCE_DIR "/tests/golden/";

nlohmann::json ReadJson(const std::string& path) { return nlohmann::json::parse(ReadFile(path).value()); }

std::vector<Sample> GoldenSamples() {
  std::vector<Sample> samples;
  for (const auto& json : ReadJson(kGolden + "samples.json")) {
    Sample sample;
    sample.token_ids = json["token_ids"].get<std::vector<int32_t>>();
    sample.loss_mask = json["loss_mask"].get<std::vector<uint8_t>>();
    sample.loss_mask[0] = 0;
    samples.push_back(sample);
  }
  return samples;
}

class ParityTest : public ::testing::TestWithParam<const char*> {
 protected:
  std::string dir() const { return kGolden + GetParam(); }

  std::unique_ptr<Decoder> LoadModel(const std::string& adapter, bool train_base) {
    DecoderOptions options;
    options.train_base = train_base;
    if (!adapter.empty()) {
      const LoraConfig lora = ReadLoraConfig(dir() + "/" + adapter).value();
      options.adapter = AdapterOptions{lora.rank, lora.scaling(), lora.dropout, lora.target_modules};
    }
    auto decoder = std::make_unique<Decoder>(ReadDecoderConfig(dir()).value(), options, comm_, *device_);
    const WeightReader base = ModelWeights(dir()).value();
    const WeightReader added = adapter.empty() ? base : AdapterWeights(dir() + "/" + adapter).value();
    const absl::Status loaded = decoder->Load([&](const ParameterSpec& spec, int64_t begin, int64_t count, float* values) {
      return (spec.name.rfind("base_model.", 0) == 0 ? added : base)(spec, begin, count, values);
    });
    EXPECT_TRUE(loaded.ok()) << loaded;
    return decoder;
  }

  void CheckLogps(const std::string& adapter, const std::string& key) {
    TrainingModel model(LoadModel(adapter, false), {}, comm_, comm_, 0);
    const auto golden = ReadJson(dir() + "/golden.json")[key];
    std::vector<Sample> samples = GoldenSamples();
    samples.resize(golden.size());
    const std::vector<SampleScore> scores = model.ForwardOnly(samples, Targets::kAll, true).value();
    double worst = 0;
    for (size_t s = 0; s < scores.size(); ++s) {
      ASSERT_EQ(scores[s].logps.size(), golden[s].size());
      for (size_t t = 0; t < scores[s].logps.size(); ++t) {
        worst = std::max(worst, std::abs(static_cast<double>(scores[s].logps[t]) - golden[s][t].get<double>()));
      }
    }
    EXPECT_LE(worst, 1e-4);
    RecordProperty("worst", std::to_string(worst));
  }

  void CheckTraining(const std::string& adapter, const std::string& key) {
    TrainingModel model(LoadModel(adapter, adapter.empty()), {.beta2 = 0.95, .weight_decay = 0.1}, comm_, comm_, 0);
    const auto golden = ReadJson(dir() + "/golden.json")[key];
    const LrSchedule schedule =
        LrSchedule::Create({.type = "cosine", .learning_rate = 2e-3, .warmup_ratio = 0.1, .total_steps = 20}).value();
    const std::vector<Sample> samples = GoldenSamples();
    for (size_t step = 0; step < golden.size(); ++step) {
      std::vector<MicroBatch> micro_batches(4);
      int64_t count = 0;
      for (size_t i = 0; i < 8; ++i) {
        const Sample& sample = samples[(step * 8 + i) % samples.size()];
        micro_batches[i / 2].samples.push_back(sample);
        for (uint8_t m : sample.loss_mask) count += m;
      }
      double loss = 0;
      const std::vector<SampleScore> scores = model.ForwardBackward(micro_batches, count).value();
      for (const SampleScore& score : scores) loss += score.loss_sum;
      const double rate = schedule.LearningRate(static_cast<int64_t>(step));
      const StepResult result = model.ClipGradAndStep(rate).value();
      EXPECT_NEAR(loss / static_cast<double>(count), golden[step]["loss"].get<double>(), 1e-4) << "step " << step;
      EXPECT_NEAR(result.grad_norm / golden[step]["grad_norm"].get<double>(), 1.0, 1e-3) << "step " << step;
      EXPECT_NEAR(rate, golden[step]["learning_rate"].get<double>(), 1e-12) << "step " << step;
    }
  }

  std::unique_ptr<Device> device_ = MakeCpuDevice(1);
  SingleCommunicator comm_;
};

TEST_P(ParityTest, LogProbabilitiesEqualTransformers) { CheckLogps("", "logps"); }
TEST_P(ParityTest, LogProbabilitiesWithAnAdapterEqualPeft) { CheckLogps("adapter", "adapter_logps"); }
TEST_P(ParityTest, TwentyStepsOfLoraEqualPyTorch) { CheckTraining("adapter_zero", "train_lora"); }
TEST_P(ParityTest, TwentyStepsOfFullTrainingEqualPyTorch) { CheckTraining("", "train_full"); }

INSTANTIATE_TEST_SUITE_P(Models, ParityTest, ::testing::Values("llama", "qwen2", "qwen3"));

}  // namespace
}  // namespace troupe::engine
