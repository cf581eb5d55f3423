#include "actors/trainer/trainer.h"

#include <sys/resource.h>

#include <optional>

#include "actors/comm/mesh_communicator.h"
#include "engine/device/cpu/cpu_device.h"
#include "engine/io/model_files.h"
#include "engine/lora/lora_config.h"
#include "engine/train/training_model.h"
#include "runtime/base/status.h"

namespace troupe::actors {
namespace {

engine::Sample FromMessage(const SampleMessage& message) { return {message.token_ids, message.loss_mask, 0}; }

ScoreMessage ToMessage(engine::SampleScore score) {
  return {score.loss_sum, score.num_targets, score.num_correct, std::move(score.logps)};
}

double PeakMemoryGib() {
  struct rusage usage {};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) / (1024.0 * 1024.0);
}

}  // namespace

struct Trainer::State {
  TrainerOptions options;
  std::optional<engine::LoraConfig> lora;
  std::unique_ptr<engine::Communicator> fsdp, dp;
  std::unique_ptr<engine::Device> device;
  std::unique_ptr<engine::TrainingModel> model;
  bool writes_files = false;
};

Trainer::Trainer(std::unique_ptr<State> state) : state_(std::move(state)) {}
Trainer::~Trainer() = default;

absl::StatusOr<std::unique_ptr<Trainer>> Trainer::Create(runtime::ActorContext& context, const TrainerOptions& options) {
  auto state = std::make_unique<State>();
  state->options = options;
  if (context.group() != nullptr) {
    state->fsdp = std::make_unique<MeshCommunicator>(*context.group(), "fsdp", 1);
    state->dp = std::make_unique<MeshCommunicator>(*context.group(), "dp", 2);
    state->writes_files = context.group()->rank == 0;
  } else {
    state->fsdp = std::make_unique<engine::SingleCommunicator>();
    state->dp = std::make_unique<engine::SingleCommunicator>();
    state->writes_files = true;
  }
  state->device = engine::MakeCpuDevice(static_cast<int>(options.num_threads));

  engine::DecoderOptions decoder_options;
  decoder_options.storage = options.bf16 ? engine::DType::kBF16 : engine::DType::kF32;
  decoder_options.gradient_checkpointing = options.gradient_checkpointing;
  decoder_options.train_base = options.trains && !options.lora;
  if (!options.adapters.empty()) {
    TROUPE_ASSIGN_OR_RETURN(state->lora, engine::ReadLoraConfig(options.adapters));
  } else if (options.trains && options.lora) {
    engine::LoraConfig lora;
    lora.rank = options.lora_rank;
    lora.alpha = options.lora_alpha;
    lora.dropout = options.lora_dropout;
    lora.use_rslora = options.use_rslora;
    TROUPE_ASSIGN_OR_RETURN(lora.target_modules, engine::ResolveTargetModules(options.target_modules));
    lora.base_model_name_or_path = options.model;
    state->lora = lora;
  }
  if (state->lora.has_value()) {
    engine::AdapterOptions adapter;
    adapter.rank = state->lora->rank;
    adapter.scaling = state->lora->scaling();
    adapter.dropout = options.trains ? state->lora->dropout : 0.0;
    adapter.target_modules = state->lora->target_modules;
    decoder_options.adapter = adapter;
  }

  TROUPE_ASSIGN_OR_RETURN(const engine::DecoderConfig config, engine::ReadDecoderConfig(options.model));
  auto decoder = std::make_unique<engine::Decoder>(config, decoder_options, *state->fsdp, *state->device);
  TROUPE_ASSIGN_OR_RETURN(const engine::WeightReader base, options.random_weights ? engine::RandomWeights(config, options.seed)
                                                                                 : engine::ModelWeights(options.model));
  TROUPE_ASSIGN_OR_RETURN(const engine::WeightReader adapter, options.adapters.empty() ? engine::FreshAdapter(options.seed)
                                                                                      : engine::AdapterWeights(options.adapters));
  TROUPE_RETURN_IF_ERROR(decoder->Load([&](const engine::ParameterSpec& spec, int64_t begin, int64_t count, float* values) {
    const bool is_adapter = spec.name.rfind("base_model.", 0) == 0;
    return (is_adapter ? adapter : base)(spec, begin, count, values);
  }));
  const engine::AdamWOptions optimizer{options.adam_beta1, options.adam_beta2, options.adam_epsilon, options.weight_decay,
                                       options.max_grad_norm};
  state->model = std::make_unique<engine::TrainingModel>(std::move(decoder), optimizer, *state->fsdp, *state->dp, options.seed);
  return std::unique_ptr<Trainer>(new Trainer(std::move(state)));
}

ModelInfo Trainer::Info() {
  ModelInfo info;
  for (const auto& block : state_->model->decoder().blocks()) {
    for (engine::FlatParameters* flat : {&block->frozen(), &block->trainable()}) {
      for (const engine::Parameter* parameter : flat->parameters) {
        const int64_t n = engine::NumElements(parameter->spec().shape);
        info.num_parameters += n;
        if (flat->trainable) info.num_trainable += n;
      }
      // Weights; and for what trains the gradient and two moments, all f32.
      info.shard_bytes += static_cast<int64_t>(flat->shard.num_bytes()) + (flat->trainable ? 3 * flat->shard_size * 4 : 0);
    }
  }
  info.instruction_set = engine::CpuInstructionSet();
  return info;
}

absl::StatusOr<std::vector<MicroBatchScores>> Trainer::ForwardBackward(const std::vector<MicroBatchMessage>& micro_batches,
                                                                       int64_t num_targets) {
  std::vector<engine::MicroBatch> batches;
  for (const MicroBatchMessage& message : micro_batches) {
    engine::MicroBatch batch;
    batch.first_sample = message.first_sample;
    for (const SampleMessage& sample : message.samples) batch.samples.push_back(FromMessage(sample));
    batches.push_back(std::move(batch));
  }
  TROUPE_ASSIGN_OR_RETURN(std::vector<engine::SampleScore> scores, state_->model->ForwardBackward(batches, num_targets));
  std::vector<MicroBatchScores> results;
  size_t next = 0;
  for (const MicroBatchMessage& message : micro_batches) {
    MicroBatchScores result;
    for (size_t i = 0; i < message.samples.size(); ++i) result.samples.push_back(ToMessage(std::move(scores[next++])));
    results.push_back(std::move(result));
  }
  return results;
}

absl::StatusOr<StepReport> Trainer::ClipGradAndStep(double learning_rate) {
  TROUPE_ASSIGN_OR_RETURN(const engine::StepResult result, state_->model->ClipGradAndStep(learning_rate));
  return StepReport{result.grad_norm, result.state_hash, PeakMemoryGib()};
}

absl::StatusOr<std::vector<ScoreMessage>> Trainer::Evaluate(const std::vector<SampleMessage>& samples, int64_t num_calls, bool all_targets,
                                                            bool with_logps) {
  std::vector<ScoreMessage> results;
  const auto calls = static_cast<size_t>(num_calls);
  for (size_t call = 0; call < calls; ++call) {
    std::vector<engine::Sample> part;
    for (size_t i = samples.size() * call / calls; i < samples.size() * (call + 1) / calls; ++i) part.push_back(FromMessage(samples[i]));
    const engine::Targets targets = all_targets ? engine::Targets::kAll : engine::Targets::kLossMask;
    TROUPE_ASSIGN_OR_RETURN(std::vector<engine::SampleScore> scores, state_->model->ForwardOnly(part, targets, with_logps));
    for (engine::SampleScore& score : scores) results.push_back(ToMessage(std::move(score)));
  }
  return results;
}

absl::Status Trainer::Save(const std::string& directory) {
  engine::Decoder& decoder = state_->model->decoder();
  const bool adapter_only = state_->lora.has_value();
  std::unique_ptr<engine::ModelFilesWriter> writer;
  absl::Status written;
  if (state_->writes_files) {
    absl::StatusOr<std::unique_ptr<engine::ModelFilesWriter>> made =
        adapter_only ? engine::ModelFilesWriter::CreateAdapter(directory, *state_->lora, decoder)
                     : engine::ModelFilesWriter::CreateModel(directory, state_->options.model,
                                                             state_->options.bf16 ? engine::DType::kBF16 : engine::DType::kF32, decoder);
    written = made.status();
    if (made.ok()) writer = *std::move(made);
  }
  // An error of the disk must not leave the others waiting: gather all the same, and report after.
  TROUPE_RETURN_IF_ERROR(decoder.Visit(adapter_only, [&](const engine::ParameterSpec& spec, const engine::Tensor& values) {
    if (writer != nullptr && written.ok()) written = writer->Write(spec, values);
    return absl::OkStatus();
  }));
  if (writer != nullptr && written.ok()) written = writer->Finish();
  return written;
}

}  // namespace troupe::actors
